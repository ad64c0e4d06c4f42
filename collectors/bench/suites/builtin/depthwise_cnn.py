"""A mobile image classifier with depthwise convolutions and squeeze-and-excitation."""

from __future__ import annotations

import torch
from torch import nn

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.recipe import assemble, class_loss

CLASSES, EXPANSION = 16, 4


class SqueezeExcite(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.squeeze, self.excite = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = x.mean((2, 3), keepdim=True)
        return x * nn.functional.hardsigmoid(self.excite(torch.relu(self.squeeze(seen))))


def conv_norm(
    before: int, after: int, size: int, stride: int = 1, groups: int = 1
) -> tuple[nn.Module, nn.Module]:
    conv = nn.Conv2d(before, after, size, stride, padding=size // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(conv.weight)
    return conv, nn.BatchNorm2d(after)


class InvertedResidual(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        wide = before * EXPANSION
        self.shortcut = before == after and stride == 1
        self.steps = nn.Sequential(
            *conv_norm(before, wide, 1),
            nn.Hardswish(),
            *conv_norm(wide, wide, 3, stride, groups=wide),
            nn.Hardswish(),
            SqueezeExcite(wide),
            *conv_norm(wide, after, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.steps(x) if self.shortcut else self.steps(x)


class DepthwiseCNN(nn.Sequential):
    def __init__(self) -> None:
        plan = ((16, 24, 2), (24, 24, 1), (24, 48, 2))
        super().__init__(
            *conv_norm(3, 16, 3, stride=2),
            nn.Hardswish(),
            *(InvertedResidual(*step) for step in plan),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(48, CLASSES),
        )


def build(batch_size: int) -> Loaded:
    def make_inputs(side: int) -> tuple[torch.Tensor]:
        return (torch.randn(batch_size, 3, side, side),)

    return assemble(
        DepthwiseCNN,
        make_inputs,
        64,
        batch_size=batch_size,
        sizes=(32, 48, 64, 96),
        size_name="image side",
        loss=class_loss,
    )
