"""Programs that inductor compiles rightly: an analysis of them has to name nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def attention(q: Tensor, k: Tensor, v: Tensor) -> Any:
    weights = (
        (q @ k.transpose(-1, -2) / 4)
        .masked_fill(torch.ones(12, 12).triu(1).bool(), -torch.inf)
        .softmax(-1)
    )
    return weights @ v, F.scaled_dot_product_attention(q, k, v)


def layer_norm_of_bfloat16(x: Tensor, w: Tensor) -> Any:
    h = F.gelu(x @ w)
    return F.layer_norm(h, h.shape[-1:]).mean(0), (h - h.mean(-1, keepdim=True)).std(-1)


def convolution_with_batch_norm(x: Tensor, w: Tensor, mean: Tensor, variance: Tensor) -> Any:
    return F.max_pool2d(
        F.relu(F.batch_norm(F.conv2d(x, w, padding=1), mean, variance, training=True)), 2
    )


def sorted_positions(x: Tensor) -> Any:
    tied = (x * 4).round()
    return tied.topk(5), tied.sort(-1), tied.argmax(), tied.max(0), x.cumsum(0), x.cummax(0)


def indexed_writes(x: Tensor, i: Tensor) -> Any:
    y = (
        torch.zeros_like(x)
        .index_add(0, i, x)
        .scatter_reduce(0, i[:, None].expand_as(x), x.exp(), "sum")
    )
    return y[i], x.index_put((i,), y[:16] * 0.1, accumulate=True), F.embedding(i, x)


def bits_and_comparisons(x: Tensor, i: Tensor) -> Any:
    return (
        (i << 2) ^ (i * 7 % 5),
        i.bitwise_and(3) == 1,
        (x > 0) | x.isnan(),
        x.sign().to(torch.int8),
        i // 3,
    )


def complex_numbers(x: Tensor) -> Any:
    z = torch.complex(x, x.flip(0))
    return torch.fft.fft(z).abs(), (z * z.conj()).real, z.exp()


def training_step(x: Tensor, w: Tensor, target: Tensor) -> Any:
    return torch.func.grad_and_value(lambda w: F.cross_entropy(F.silu(x @ w), target))(w)


def state_in_place(x: Tensor, state: Tensor) -> Any:
    before = state.view(-1)[:5] * 2
    state.mul_(0.9).add_(x, alpha=0.1)
    return before, state.view(-1)[:5] + 1, state.norm()


def overflow_and_zeros(x: Tensor) -> Any:
    big = x * 1000.0
    return (big * big).mean(), 1.0 / x.relu(), (x - x).log(), big.exp().tanh(), x.relu() / x.relu()


def random_numbers(x: Tensor) -> Any:
    return F.dropout(x, 0.5) * 2, torch.rand_like(x) + x, torch.randint(0, 9, (4,)).float().sin()


def _draw(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(11)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


HEALTHY: dict[str, tuple[Callable[..., Any], Callable[[], list[Tensor]]]] = {
    "attention": (attention, lambda: _draw((2, 12, 16), (2, 12, 16), (2, 12, 16))),
    "layer_norm_of_bfloat16": (
        layer_norm_of_bfloat16,
        lambda: _draw((24, 32), (32, 64), dtype=torch.bfloat16),
    ),
    "convolution_with_batch_norm": (
        convolution_with_batch_norm,
        lambda: [*_draw((2, 3, 8, 8), (6, 3, 3, 3)), torch.zeros(6), torch.ones(6)],
    ),
    "sorted_positions": (sorted_positions, lambda: _draw((9, 14))),
    "indexed_writes": (indexed_writes, lambda: [*_draw((16, 8)), torch.arange(16) * 3 % 16]),
    "bits_and_comparisons": (bits_and_comparisons, lambda: [*_draw((30,)), torch.arange(-9, 21)]),
    "complex_numbers": (complex_numbers, lambda: _draw((4, 16))),
    "training_step": (training_step, lambda: [*_draw((12, 20), (20, 7)), torch.arange(12) % 7]),
    "state_in_place": (state_in_place, lambda: _draw((6, 5), (6, 5))),
    "overflow_and_zeros": (overflow_and_zeros, lambda: _draw((64,), dtype=torch.float16)),
    "random_numbers": (random_numbers, lambda: _draw((20,))),
}


def trace(program: Any, inputs: list[Any]) -> Any:
    """Return the graph that inductor gets of a program."""
    from torch._inductor.compile_fx import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._pytree import tree_leaves

    def flat(*arguments: Any) -> Any:
        return tuple(tree_leaves(program(*arguments)))

    return make_fx(torch.func.functionalize(flat), select_decomp_table())(*inputs)
