"""A vision transformer with a class token."""

from __future__ import annotations

import torch
from torch import nn

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.layers import PreNormBlock
from compileboard.collectors.bench.suites.builtin.recipe import assemble, class_loss

IMAGE, PATCH, WIDTH, HEADS, DEPTH, CLASSES = 64, 8, 192, 4, 3, 16


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.answer = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.02)
        self.places = nn.Parameter(torch.randn(1, 1 + (IMAGE // PATCH) ** 2, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(PreNormBlock(WIDTH, HEADS) for _ in range(DEPTH)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        patches = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.answer.expand(image.shape[0], -1, -1), patches), dim=1) + self.places
        return self.head(self.norm(self.blocks(x)[:, 0]))


def build(batch_size: int) -> Loaded:
    def make_inputs(batch: int) -> tuple[torch.Tensor]:
        return (torch.randn(batch, 3, IMAGE, IMAGE),)

    sizes = (1, 2, 6, 8)
    return assemble(
        VisionTransformer,
        make_inputs,
        batch_size,
        batch_size=batch_size,
        sizes=sizes,
        loss=class_loss,
    )
