"""Image classifiers: a VGG-like CNN, a ResNet, a mobile CNN and a vision transformer."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from compileboard.collectors.bench.loaded import Inputs
from compileboard.collectors.bench.suites.builtin.parts import (
    ConvNorm,
    PreNormBlock,
    Recipe,
    class_loss,
    images,
)

CNN_CLASSES = 16


class CNN(nn.Sequential):
    def __init__(self) -> None:
        widths = (3, 32, 64, 128)
        stages = [
            nn.Sequential(ConvNorm(before, after), ConvNorm(after, after), nn.MaxPool2d(2))
            for before, after in itertools.pairwise(widths)
        ]
        super().__init__(
            *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CNN_CLASSES)
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
        head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CNN_CLASSES))
        super().__init__(ConvNorm(3, widths[0]), *blocks, *head)


def small_images(_batch_size: int, count: int) -> Inputs:
    return images(count, 32)


cnn_batchnorm = Recipe(CNN, small_images, (2, 4, 12, 16), loss=class_loss)
resnet = Recipe(ResNet, small_images, (2, 4, 12, 16), loss=class_loss)


# A mobile classifier with depthwise convolutions and squeeze-and-excitation.
MOBILE_CLASSES, EXPANSION = 16, 4


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
            nn.Linear(48, MOBILE_CLASSES),
        )


depthwise_cnn = Recipe(DepthwiseCNN, images, (32, 48, 64, 96), 64, "image side", class_loss)


VIT_IMAGE, VIT_PATCH, VIT_WIDTH, VIT_HEADS, VIT_DEPTH, VIT_CLASSES = 64, 8, 192, 4, 3, 16


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, VIT_WIDTH, VIT_PATCH, VIT_PATCH)
        self.answer = nn.Parameter(torch.randn(1, 1, VIT_WIDTH) * 0.02)
        self.places = nn.Parameter(
            torch.randn(1, 1 + (VIT_IMAGE // VIT_PATCH) ** 2, VIT_WIDTH) * 0.02
        )
        self.blocks = nn.Sequential(*(PreNormBlock(VIT_WIDTH, VIT_HEADS) for _ in range(VIT_DEPTH)))
        self.norm, self.head = nn.LayerNorm(VIT_WIDTH), nn.Linear(VIT_WIDTH, VIT_CLASSES)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        patches = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.answer.expand(image.shape[0], -1, -1), patches), dim=1) + self.places
        return self.head(self.norm(self.blocks(x)[:, 0]))


vision_transformer = Recipe(
    VisionTransformer,
    lambda _batch_size, count: images(count, VIT_IMAGE),
    (1, 2, 6, 8),
    loss=class_loss,
)
