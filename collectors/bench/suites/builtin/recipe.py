"""Helpers of the built-in models: fixed weights and losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.nn import functional as F

from compileboard.collectors.bench.loaded import Inputs, Loaded

SEED = 1337


@contextmanager
def fixed_seed() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        yield


def assemble(
    make_module: Callable[[], torch.nn.Module],
    make_inputs: Callable[[int], Inputs],
    size: int,
    *,
    batch_size: int,
    sizes: tuple[int, ...],
    size_name: str = "batch size",
    loss: Callable[..., torch.Tensor] | None = None,
) -> Loaded:
    def resize(new_size: int) -> Inputs:
        with fixed_seed():
            return make_inputs(new_size)

    with fixed_seed():
        module = make_module()
    return Loaded(module, resize(size), loss, batch_size, resize, size_name, sizes)


def class_loss(logits: torch.Tensor) -> torch.Tensor:
    logits = logits.flatten(0, -2)
    targets = torch.arange(logits.shape[0], device=logits.device) % logits.shape[1]
    return F.cross_entropy(logits, targets)


def pixel_class_loss(logits: torch.Tensor) -> torch.Tensor:
    return class_loss(logits.movedim(1, -1))


def click_loss(logits: torch.Tensor) -> torch.Tensor:
    targets = torch.arange(logits.numel(), device=logits.device) % 2
    return F.binary_cross_entropy_with_logits(logits.flatten(), targets.to(logits.dtype))


def pattern_loss(output: torch.Tensor) -> torch.Tensor:
    ramp = torch.linspace(-1, 1, output.numel(), device=output.device, dtype=output.dtype)
    return F.mse_loss(output, ramp.view_as(output))
