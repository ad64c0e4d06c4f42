"""Two image classifiers: a VGG-like CNN with batch norm, and a ResNet."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.recipe import assemble, class_loss

IMAGE, CLASSES = 32, 16
BATCHES = (2, 4, 12, 16)


class ConvNorm(nn.Sequential):
    def __init__(
        self, before: int, after: int, *, size: int = 3, stride: int = 1, bend: bool = True
    ) -> None:
        super().__init__(
            nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True) if bend else nn.Identity(),
        )
        nn.init.kaiming_normal_(
            self[0].weight, nonlinearity="relu"
        )  # keeps the features' size in eval mode too


class CNN(nn.Sequential):
    def __init__(self) -> None:
        widths = (3, 32, 64, 128)
        stages = [
            nn.Sequential(ConvNorm(before, after), ConvNorm(after, after), nn.MaxPool2d(2))
            for before, after in itertools.pairwise(widths)
        ]
        super().__init__(
            *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CLASSES)
        )


class BasicBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = (
            ConvNorm(before, after, stride=stride),
            ConvNorm(after, after, bend=False),
        )
        same = before == after and stride == 1
        self.shortcut = (
            nn.Identity() if same else ConvNorm(before, after, size=1, stride=stride, bend=False)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.shortcut(x) + self.second(self.first(x)))


class ResNet(nn.Sequential):
    def __init__(self) -> None:
        widths = (32, 32, 64, 128)
        blocks = [
            block
            for stage, (before, after) in enumerate(itertools.pairwise(widths))
            for block in (BasicBlock(before, after, 2 if stage else 1), BasicBlock(after, after, 1))
        ]
        head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CLASSES))
        super().__init__(ConvNorm(3, widths[0]), *blocks, *head)


def _images(batch: int) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 3, IMAGE, IMAGE),)


def build_cnn(batch_size: int) -> Loaded:
    return assemble(CNN, _images, batch_size, batch_size=batch_size, sizes=BATCHES, loss=class_loss)


def build_resnet(batch_size: int) -> Loaded:
    return assemble(
        ResNet, _images, batch_size, batch_size=batch_size, sizes=BATCHES, loss=class_loss
    )
