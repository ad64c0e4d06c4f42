"""A one-stage detector with non-maximum suppression.

The number of boxes depends on the image, except in training, which uses all positions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.convolution import ConvNorm
from compileboard.collectors.bench.suites.builtin.recipe import assemble, click_loss, pattern_loss

CLASSES, STRIDE, WIDTH = 4, 8, 64
SURE_ENOUGH, OVERLAP = 0.9, 0.4


def intersection_over_union(boxes: torch.Tensor) -> torch.Tensor:
    """Return the pairwise IoU (0 to 1) of boxes (left, top, right, bottom)."""
    corner = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    other_corner = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    shared = (other_corner - corner).clamp(min=0).prod(dim=-1)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(dim=-1)
    return shared / (area[:, None] + area[None, :] - shared)


def select(boxes: torch.Tensor, scores: torch.Tensor) -> dict[str, torch.Tensor]:
    best, label = scores.max(dim=-1)
    selected = torch.nonzero(best > SURE_ENOUGH).squeeze(1)
    selected = selected[best[selected].argsort(descending=True, stable=True)]
    surer = intersection_over_union(boxes[selected]).triu(diagonal=1)
    selected = selected[(surer <= OVERLAP).all(dim=0)]
    return {"boxes": boxes[selected], "scores": best[selected], "labels": label[selected]}


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            ConvNorm(3, 16, stride=2),
            ConvNorm(16, 32, stride=2),
            ConvNorm(32, WIDTH, stride=2),
            ConvNorm(WIDTH, WIDTH),
        )
        self.score, self.distance = (
            nn.Conv2d(WIDTH, CLASSES, 3, padding=1),
            nn.Conv2d(WIDTH, 4, 3, padding=1),
        )
        nn.init.normal_(
            self.score.weight, std=0.1
        )  # scores far apart: none lies at the threshold by chance

    def places(self, features: torch.Tensor) -> torch.Tensor:
        height, width = features.shape[-2:]
        x = torch.arange(width, device=features.device, dtype=features.dtype)
        y = torch.arange(height, device=features.device, dtype=features.dtype)
        grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1).flatten(0, 1)
        return ((grid + 0.5) * STRIDE).repeat(1, 2)

    def forward(self, images: torch.Tensor) -> Any:
        """Return (scores, boxes) of all positions while training, else one dictionary per image."""
        features = self.backbone(images)
        scores = self.score(features).flatten(2).transpose(1, 2)
        reach = F.softplus(self.distance(features)).flatten(2).transpose(1, 2) * 2 * STRIDE
        outward = torch.tensor((-1.0, -1.0, 1.0, 1.0), device=images.device, dtype=reach.dtype)
        boxes = self.places(features) + reach * outward
        if self.training:
            return scores, boxes
        return [select(box, score) for box, score in zip(boxes, scores.sigmoid())]


def detection_loss(output: Any) -> torch.Tensor:
    if isinstance(output, tuple):
        scores, boxes = output
        return click_loss(scores) + pattern_loss(boxes / STRIDE)
    return torch.cat([detections["scores"] for detections in output]).mean()


def build(batch_size: int) -> Loaded:
    def make_inputs(side: int) -> tuple[torch.Tensor]:
        return (torch.randn(batch_size, 3, side, side),)

    return assemble(
        Detector,
        make_inputs,
        128,
        batch_size=batch_size,
        sizes=(64, 96, 160),
        size_name="image side",
        loss=detection_loss,
    )
