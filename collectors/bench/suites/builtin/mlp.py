"""A residual multilayer perceptron for tabular data."""

from __future__ import annotations

import torch
from torch import nn

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.recipe import assemble, class_loss

FEATURES, WIDTH, DEPTH, CLASSES = 128, 384, 4, 16


class ResidualBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(nn.functional.gelu(self.widen(self.norm(x))))


class MLP(nn.Sequential):
    def __init__(self) -> None:
        blocks = (ResidualBlock(WIDTH) for _ in range(DEPTH))
        super().__init__(
            nn.Linear(FEATURES, WIDTH), *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)
        )


def build(batch_size: int) -> Loaded:
    def make_inputs(rows: int) -> tuple[torch.Tensor]:
        return (torch.randn(rows, FEATURES),)

    sizes = (16, 48, 96, 128)
    return assemble(
        MLP, make_inputs, batch_size, batch_size=batch_size, sizes=sizes, loss=class_loss
    )
