"""Programs that use CUDA graphs, each in another way: `… .programs NAME`. They need a GPU."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import nn

WIDTH = 64


def _input(size: int = 8) -> torch.Tensor:
    return torch.randn(size, WIDTH, device="cuda")


def _layers(count: int = 2) -> nn.Module:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(count))).cuda()


def one_shape() -> None:
    model = torch.compile(_layers(), mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(6):
            model(_input())


def max_autotune() -> None:
    model = torch.compile(lambda x: (x * 2).relu().sum(1), mode="max-autotune")
    with torch.no_grad():
        for _ in range(6):
            model(_input())


def sizes() -> None:
    model = torch.compile(_layers(), mode="reduce-overhead", dynamic=True)
    with torch.no_grad():
        for size in (8, 8, 8, 16, 16, 24, 8, 32):
            model(_input(size))


def branches() -> None:
    first, second = _layers(), _layers()

    def forward(x: torch.Tensor) -> torch.Tensor:
        x = first(x).relu()
        if x.sum() > 0.5 * x.numel():
            return second(x) + 1
        return second(x) * 2

    model = torch.compile(forward, mode="reduce-overhead")
    with torch.no_grad():
        for scale in (1, 1, 1, 1, 9, 9, 9, 1, 9):
            model(_input() * scale * scale)


def parameter_replaced() -> None:
    layers = _layers()
    model = torch.compile(layers, mode="reduce-overhead")
    with torch.no_grad():
        for step in range(9):
            if step % 3 == 2:
                layers[0].weight = nn.Parameter(torch.randn(WIDTH, WIDTH, device="cuda"))
            model(_input())


def train() -> None:
    layers = _layers()
    model = torch.compile(layers, mode="reduce-overhead")
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    for _ in range(6):
        model(_input()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def mutated_input() -> None:
    @torch.compile(mode="reduce-overhead")
    def add(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x.relu()

    with torch.no_grad():
        for _ in range(4):
            add(_input())


def cpu_tensor() -> None:
    @torch.compile(mode="reduce-overhead")
    def scale(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return (x * factor).relu() @ x.T

    with torch.no_grad():
        for _ in range(4):
            scale(_input(), torch.tensor(2.0))


def partitions() -> None:
    @torch.compile(mode="reduce-overhead")
    def through_the_cpu(x: torch.Tensor) -> torch.Tensor:
        total = (x * 2).sum(0).cpu() + 1
        return (x + total.cuda()).relu()

    with torch.no_grad():
        for _ in range(5):
            through_the_cpu(_input())


def one_layer_many_times() -> None:
    layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4)).cuda()
    step = torch.compile(
        lambda x, weight, bias: torch.nn.functional.linear(x, weight, bias).relu(),
        mode="reduce-overhead",
    )
    with torch.no_grad():
        for _ in range(5):
            torch.compiler.cudagraph_mark_step_begin()
            x = _input()
            for layer in layers:
                x = step(x, layer.weight, layer.bias)


def state_passed_on() -> None:
    cell = _layers()
    step = torch.compile(lambda state, x: torch.tanh(cell(state) + x), mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(3):
            torch.compiler.cudagraph_mark_step_begin()
            state = _input()
            for _ in range(3):
                state = step(state, _input())


def another_output() -> None:
    torch._inductor.config.triton.cudagraph_unexpected_rerecord_limit = 2
    double = torch.compile(lambda x: x * 2, mode="reduce-overhead")
    norm = torch.compile(lambda x: x / x.norm(), mode="reduce-overhead")
    with torch.no_grad():
        for step in range(16):
            torch.compiler.cudagraph_mark_step_begin()
            made = [double(_input()) for _ in range(5)]
            norm(made[step // 3 % 5])


def output_alive() -> None:
    double = torch.compile(lambda x: x * 2, mode="reduce-overhead")
    norm = torch.compile(lambda x: x / x.norm(), mode="reduce-overhead")
    with torch.no_grad():
        for step in range(12):
            torch.compiler.cudagraph_mark_step_begin()
            made = double(_input())
            if step % 4 < 2:
                del made
            norm(_input())


def output_kept() -> None:
    step = torch.compile(lambda x: (x @ x.T).relu(), mode="reduce-overhead")
    kept = []
    with torch.no_grad():
        for _ in range(4):
            kept.append(step(_input()))
    torch.stack(kept).sum().item()  # raises


def static_cache() -> None:
    cache = torch.zeros(32, WIDTH, device="cuda")
    torch._dynamo.mark_static_address(cache)
    layers = _layers()

    @torch.compile(mode="reduce-overhead")
    def decode(x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, position, layers(x))
        return cache.mean(0, keepdim=True)

    with torch.no_grad():
        for position in range(8):
            torch.compiler.cudagraph_mark_step_begin()
            decode(_input(1), torch.tensor([position], device="cuda"))


PROGRAMS: dict[str, Callable[[], None]] = {
    program.__name__: program
    for program in (
        one_shape,
        max_autotune,
        sizes,
        branches,
        parameter_replaced,
        train,
        mutated_input,
        cpu_tensor,
        partitions,
        one_layer_many_times,
        state_passed_on,
        another_output,
        output_alive,
        output_kept,
        static_cache,
    )
}

if __name__ == "__main__":
    from benchmarks.common import require_gpu

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=PROGRAMS)
    program = PROGRAMS[parser.parse_args().name]
    require_gpu()
    torch.manual_seed(0)
    program()
    torch.cuda.synchronize()
