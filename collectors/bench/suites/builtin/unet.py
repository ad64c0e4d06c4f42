"""A U-Net for semantic segmentation."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.convolution import ConvNorm
from compileboard.collectors.bench.suites.builtin.recipe import assemble, pixel_class_loss

CLASSES, WIDTHS = 5, (16, 32, 64)


def double(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(ConvNorm(before, after), ConvNorm(after, after))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = double(3, WIDTHS[0])
        self.downs = nn.ModuleList(
            double(before, after) for before, after in itertools.pairwise(WIDTHS)
        )
        turned = WIDTHS[::-1]
        self.widens = nn.ModuleList(
            nn.ConvTranspose2d(before, after, 2, stride=2)
            for before, after in itertools.pairwise(turned)
        )
        self.ups = nn.ModuleList(double(2 * after, after) for after in turned[1:])
        self.head = nn.Conv2d(WIDTHS[0], CLASSES, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        beside = [self.enter(image)]
        for down in self.downs:
            beside.append(down(nn.functional.max_pool2d(beside[-1], 2)))
        x = beside.pop()
        for widen, up in zip(self.widens, self.ups):
            x = up(torch.cat((widen(x), beside.pop()), dim=1))
        return self.head(x)


def build(batch_size: int) -> Loaded:
    def make_inputs(side: int) -> tuple[torch.Tensor]:
        return (torch.randn(batch_size, 3, side, side),)

    return assemble(
        UNet,
        make_inputs,
        64,
        batch_size=batch_size,
        sizes=(32, 48, 64, 96),
        size_name="image side",
        loss=pixel_class_loss,
    )
