"""Programs with a graph break, each beside itself with the break gone.

The first ones were looked at when the estimates were written, the others were not.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Call = Callable[[], Any]
Pair = tuple[Call, Call]  # with the break, without
log = logging.getLogger("benchmark")
log.addHandler(logging.NullHandler())
log.propagate = False


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.second(F.gelu(self.first(x))))


def make_blocks(count: int, width: int = 256) -> nn.Sequential:
    return nn.Sequential(*(Block(width) for _ in range(count))).cuda()


def pair(broken: Callable[..., Any], whole: Callable[..., Any], *arguments: Any) -> Pair:
    calls = [torch.compile(broken), torch.compile(whole)]

    def call(compiled: Callable[..., Any]) -> Any:
        with torch.no_grad():
            return compiled(*arguments)

    return (lambda: call(calls[0])), (lambda: call(calls[1]))


def train(forward: Callable[..., Any], x: torch.Tensor, parameters: list[nn.Parameter]) -> Call:
    compiled = torch.compile(forward)

    def step():
        compiled(x).square().mean().backward()
        for one in parameters:
            one.grad = None

    return step


# -- resumed, looked at


def branch_on_item() -> Pair:
    head, tail, x = make_blocks(3), make_blocks(3), torch.randn(64, 256, device="cuda")

    def broken(x):
        x = head(x)
        if x.sum().item() > 0:
            x = x * 2
        return tail(x)

    def whole(x):
        x = head(x)
        return tail(torch.where(x.sum() > 0, x * 2, x))

    return pair(broken, whole, x)


def through_numpy() -> Pair:
    head, tail, x = make_blocks(2), make_blocks(2), torch.randn(64, 256, device="cuda")

    def broken(x):
        x = head(x)
        import numpy as np

        scale = float(np.tanh(x[0, 0].cpu().numpy()))
        return tail(x * scale)

    def whole(x):
        x = head(x)
        return tail(x * torch.tanh(x[0, 0]))

    return pair(broken, whole, x)


def between_elementwise() -> Pair:
    x = torch.randn(1 << 26, device="cuda")

    def broken(x):
        y = torch.sin(x) * 2 + 1
        torch._dynamo.graph_break()
        return torch.relu(y) * 3 - x

    def whole(x):
        y = torch.sin(x) * 2 + 1
        return torch.relu(y) * 3 - x

    return pair(broken, whole, x)


def printed() -> Pair:
    head, tail, x = make_blocks(2), make_blocks(2), torch.randn(64, 256, device="cuda")

    def broken(x):
        x = head(x)
        log.info("halfway %s", x.shape)
        return tail(x)

    return pair(broken, lambda x: tail(head(x)), x)


def in_training() -> Pair:
    head, tail, x = make_blocks(2), make_blocks(2), torch.randn(64, 256, device="cuda")
    both = [*head.parameters(), *tail.parameters()]

    def forward_broken(x):
        x = head(x)
        if x.detach().abs().max().item() > 1e9:
            x = x / 2
        return tail(x)

    def forward_whole(x):
        return tail(head(x))

    return train(forward_broken, x, both), train(forward_whole, x, both)


def in_a_function() -> Pair:
    head, tail, x = make_blocks(2), make_blocks(2), torch.randn(64, 256, device="cuda")

    def scale(x):
        x = torch.relu(x) + 1
        factor = 1.0 if x.mean().item() > 0 else 2.0
        return x * factor

    def broken(x):
        return tail(scale(head(x)))

    def whole(x):
        y = torch.relu(head(x)) + 1
        return tail(torch.where(y.mean() > 0, y, y * 2))

    return pair(broken, whole, x)


# -- resumed, not looked at


def four_breaks() -> Pair:
    parts = [make_blocks(1) for _ in range(5)]
    x = torch.randn(32, 256, device="cuda")

    def broken(x):
        x = parts[0](x)
        log.info("one")
        x = parts[1](x)
        log.info("two")
        x = parts[2](x)
        log.info("three")
        x = parts[3](x)
        log.info("four")
        return parts[4](x)

    def whole(x):
        for part in parts:
            x = part(x)
        return x

    return pair(broken, whole, x)


def timed_section() -> Pair:
    head, tail, x = make_blocks(4, 1024), make_blocks(4, 1024), torch.randn(2048, 1024).cuda()
    spent = [0.0]

    def broken(x):
        begin = time.time_ns()
        x = head(x)
        spent[0] += time.time_ns() - begin
        return tail(x)

    return pair(broken, lambda x: tail(head(x)), x)


def selected_rows() -> Pair:
    head, tail, x = make_blocks(2), make_blocks(2), torch.randn(64, 256, device="cuda")

    def broken(x):
        x = head(x)
        best = x.sum(1).argmax().item()
        return tail(x) + x[best]

    def whole(x):
        x = head(x)
        best = x.sum(1).argmax()
        return tail(x) + x.index_select(0, best[None])

    return pair(broken, whole, x)


def two_chains() -> Pair:
    x = torch.randn(1 << 24, device="cuda")

    def broken(x):
        y = F.silu(x) * 0.5
        torch._dynamo.graph_break()
        z = y + x.cos()
        torch._dynamo.graph_break()
        return z.tanh() * y

    def whole(x):
        y = F.silu(x) * 0.5
        z = y + x.cos()
        return z.tanh() * y

    return pair(broken, whole, x)


def conv_and_check() -> Pair:
    def convolutions(first, *others):
        layers = []
        for width in others:
            layers += [nn.Conv2d(first, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            first = width
        return nn.Sequential(*layers).cuda().eval()

    head, tail = convolutions(3, 32, 64), convolutions(64, 64, 32)
    x = torch.randn(8, 3, 64, 64, device="cuda")

    def broken(x):
        x = head(x)
        if torch.isnan(x).any().item():
            raise ValueError("not a number")
        return tail(x).mean((2, 3))

    def whole(x):
        x = head(x)
        return torch.isnan(x).any(), tail(x).mean((2, 3))

    return pair(broken, whole, x)


def attention_length() -> Pair:
    width, x = 256, torch.randn(8, 128, 256, device="cuda")
    project, tail = nn.Linear(width, 3 * width).cuda(), make_blocks(2)

    def attend(x):
        q, k, v = project(x).view(8, 128, 3, 4, 64).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(8, 128, 256)

    def broken(x):
        x = attend(x)
        steps = int(x.abs().mean().item() * 0) + 1
        return tail(x) * steps

    def whole(x):
        x = attend(x)
        return tail(x), x.abs().mean()

    return pair(broken, whole, x)


def disabled_helper() -> Pair:
    head, tail, x = make_blocks(2), make_blocks(2), torch.randn(64, 256, device="cuda")

    def soft_clip(x):
        return torch.tanh(x) * 3

    apart = torch.compiler.disable(soft_clip)
    return pair(lambda x: tail(apart(head(x))), lambda x: tail(soft_clip(head(x))), x)


def loss_logged() -> Pair:
    model, x = make_blocks(3), torch.randn(128, 256, device="cuda")
    seen = []

    def broken(x):
        y = model(x)
        loss = (y - x).square().mean()
        seen.append(loss.item())
        del seen[:]
        return loss + y.abs().mean()

    def whole(x):
        y = model(x)
        return (y - x).square().mean() + y.abs().mean()

    return pair(broken, whole, x)


def to_the_host_and_back() -> Pair:
    head, tail, x = make_blocks(2), make_blocks(2), torch.randn(64, 256, device="cuda")

    def broken(x):
        x = head(x)
        rows = x.mean(1).tolist()
        return tail(x) * max(rows)

    def whole(x):
        x = head(x)
        return tail(x) * x.mean(1).max()

    return pair(broken, whole, x)


def wide_training() -> Pair:
    head, tail = make_blocks(2, 1024), make_blocks(2, 1024)
    x = torch.randn(1024, 1024, device="cuda")
    both = [*head.parameters(), *tail.parameters()]

    def forward_broken(x):
        x = head(x)
        log.info("halfway")
        return tail(x)

    return train(forward_broken, x, both), train(lambda x: tail(head(x)), x, both)


RESUMED: dict[str, Callable[[], Pair]] = {
    f.__name__: f
    for f in (
        branch_on_item,
        through_numpy,
        between_elementwise,
        printed,
        in_training,
        in_a_function,
    )
}
RESUMED_UNSEEN: dict[str, Callable[[], Pair]] = {
    f.__name__: f
    for f in (
        four_breaks,
        timed_section,
        selected_rows,
        two_chains,
        conv_and_check,
        attention_length,
        disabled_helper,
        loss_logged,
        to_the_host_and_back,
        wide_training,
    )
}


# -- skipped: the break is in a loop or a `with`, and the frame runs eagerly


def loop_of_matmuls() -> Pair:
    weights = [torch.randn(256, 256, device="cuda") / 16 for _ in range(6)]

    def whole(x):
        for weight in weights:
            x = torch.relu(x @ weight) + 1
        return x

    def broken(x):
        for weight in weights:
            x = torch.relu(x @ weight) + 1
            log.info("layer")
        return x

    return pair(broken, whole, torch.randn(64, 256, device="cuda"))


def loop_of_modules() -> Pair:
    blocks = make_blocks(5)

    def whole(x):
        for block in blocks:
            x = block(x)
        return x

    def broken(x):
        for block in blocks:
            x = block(x)
            log.info("block")
        return x

    return pair(broken, whole, torch.randn(64, 256, device="cuda"))


def large_elementwise_loop() -> Pair:
    def whole(x):
        for _ in range(4):
            x = torch.sin(x) * 1.1 + 0.1
        return x

    def broken(x):
        for _ in range(4):
            x = torch.sin(x) * 1.1 + 0.1
            log.info("round")
        return x

    return pair(broken, whole, torch.randn(1 << 24, device="cuda"))


def recurrent_cell() -> Pair:
    cell = nn.GRUCell(128, 128).cuda()
    steps = torch.randn(8, 32, 128, device="cuda")

    def whole(h):
        for x in steps:
            h = cell(x, h)
        return h

    def broken(h):
        for x in steps:
            h = cell(x, h)
            log.info("step")
        return h

    return pair(broken, whole, torch.randn(32, 128, device="cuda"))


def refined_until() -> Pair:
    target = torch.randn(64, 256, device="cuda")
    weight = torch.randn(256, 256, device="cuda") / 16

    def whole(x):
        for _ in range(5):
            x = x - 0.1 * (x - target) @ weight
            x = F.layer_norm(x, (256,))
        return x

    def broken(x):
        for _ in range(5):
            x = x - 0.1 * (x - target) @ weight
            x = F.layer_norm(x, (256,))
            if x.abs().max().item() > 1e6:
                break
        return x

    return pair(broken, whole, torch.randn(64, 256, device="cuda"))


def softmax_heads() -> Pair:
    weights = [torch.randn(128, 64, device="cuda") / 8 for _ in range(6)]

    def head(x, weight):
        return torch.softmax((x @ weight) @ (x @ weight).T / 8, -1) @ x

    def whole(x):
        return sum(head(x, weight) for weight in weights)

    def broken(x):
        total = 0
        for weight in weights:
            total = total + torch.softmax((x @ weight) @ (x @ weight).T / 8, -1) @ x
            log.info("head")
        return total

    def together(x):
        total = 0
        for weight in weights:
            total = total + torch.softmax((x @ weight) @ (x @ weight).T / 8, -1) @ x
        return total

    return pair(broken, together, torch.randn(256, 128, device="cuda"))


def conv_pyramid() -> Pair:
    layers = [nn.Conv2d(16, 16, 3, padding=1).cuda().eval() for _ in range(5)]

    def whole(x):
        total = 0
        for layer in layers:
            x = F.relu(layer(x)) + x
            total = total + x.mean()
        return x, total

    def broken(x):
        total = 0
        for layer in layers:
            x = F.relu(layer(x)) + x
            total = total + x.mean()
            log.info("level")
        return x, total

    return pair(broken, whole, torch.randn(4, 16, 64, 64, device="cuda"))


def residual_gates() -> Pair:
    gates = [torch.randn(512, device="cuda") for _ in range(8)]

    def whole(x):
        for gate in gates:
            x = x + torch.sigmoid(gate) * torch.tanh(x * gate) - x.mean(-1, keepdim=True)
        return x

    def broken(x):
        for gate in gates:
            x = x + torch.sigmoid(gate) * torch.tanh(x * gate) - x.mean(-1, keepdim=True)
            log.info("gate")
        return x

    return pair(broken, whole, torch.randn(128, 512, device="cuda"))


def gelu_chain() -> Pair:
    scales = [torch.rand(1024, device="cuda") + 0.5 for _ in range(6)]

    def whole(x):
        for scale in scales:
            x = F.gelu(x * scale) - 0.1 * x
        return x

    def broken(x):
        for scale in scales:
            x = F.gelu(x * scale) - 0.1 * x
            log.info("scaled")
        return x

    return pair(broken, whole, torch.randn(512, 1024, device="cuda"))


def normed_layers() -> Pair:
    weights = [torch.ones(768, device="cuda") for _ in range(5)]

    def whole(x):
        for weight in weights:
            x = x + F.silu(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight)
        return x

    def broken(x):
        for weight in weights:
            x = x + F.silu(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight)
            log.info("normed")
        return x

    return pair(broken, whole, torch.randn(256, 768, device="cuda"))


def discounted_returns() -> Pair:
    def whole(rewards):
        total, found = torch.zeros_like(rewards[0]), []
        for reward in rewards.flip(0):
            total = reward + 0.99 * total
            found.append(total)
        return torch.stack(found)

    def broken(rewards):
        total, found = torch.zeros_like(rewards[0]), []
        for reward in rewards.flip(0):
            total = reward + 0.99 * total
            found.append(total)
            log.info("step")
        return torch.stack(found)

    return pair(broken, whole, torch.randn(24, 256, device="cuda"))


def blurred_image() -> Pair:
    def whole(x):
        for shift in (1, 2, 3, 4):
            x = (x + x.roll(shift, -1) + x.roll(-shift, -1)).clamp(0, 3) / 3
        return x

    def broken(x):
        for shift in (1, 2, 3, 4):
            x = (x + x.roll(shift, -1) + x.roll(-shift, -1)).clamp(0, 3) / 3
            log.info("blurred")
        return x

    return pair(broken, whole, torch.rand(3, 512, 512, device="cuda"))


def mixed_experts() -> Pair:
    experts = [torch.randn(256, 256, device="cuda") / 16 for _ in range(4)]

    def whole(x):
        total = torch.zeros_like(x)
        for expert in experts:
            total = total + torch.tanh(x @ expert) * x.mean(-1, keepdim=True)
        return total

    def broken(x):
        total = torch.zeros_like(x)
        for expert in experts:
            total = total + torch.tanh(x @ expert) * x.mean(-1, keepdim=True)
            log.info("expert")
        return total

    return pair(broken, whole, torch.randn(128, 256, device="cuda"))


def soft_targets() -> Pair:
    temperatures = (0.5, 1.0, 2.0, 4.0)

    def whole(logits):
        loss = 0
        for temperature in temperatures:
            spread = F.log_softmax(logits / temperature, -1)
            loss = loss - (spread.exp() * spread).sum(-1).mean() * temperature
        return loss

    def broken(logits):
        loss = 0
        for temperature in temperatures:
            spread = F.log_softmax(logits / temperature, -1)
            loss = loss - (spread.exp() * spread).sum(-1).mean() * temperature
            log.info("target")
        return loss

    return pair(broken, whole, torch.randn(512, 1000, device="cuda"))


SKIPPED: dict[str, Callable[[], Pair]] = {
    f.__name__: f
    for f in (
        loop_of_matmuls,
        large_elementwise_loop,
        recurrent_cell,
        loop_of_modules,
        refined_until,
        softmax_heads,
        conv_pyramid,
        residual_gates,
    )
}
SKIPPED_UNSEEN: dict[str, Callable[[], Pair]] = {
    f.__name__: f
    for f in (
        gelu_chain,
        normed_layers,
        discounted_returns,
        blurred_image,
        mixed_experts,
        soft_targets,
    )
}
