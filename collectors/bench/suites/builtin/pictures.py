"""Models whose output is more than the class of a picture: segmentation, detection, generation."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from compileboard.collectors.bench.loaded import Inputs
from compileboard.collectors.bench.suites.builtin.parts import (
    ConvNorm,
    FusedAttention,
    Recipe,
    click_loss,
    images,
    pattern_loss,
    pixel_class_loss,
)

UNET_CLASSES, UNET_WIDTHS = 5, (16, 32, 64)


def double_convolution(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(ConvNorm(before, after), ConvNorm(after, after))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = double_convolution(3, UNET_WIDTHS[0])
        self.downs = nn.ModuleList(
            double_convolution(before, after) for before, after in itertools.pairwise(UNET_WIDTHS)
        )
        turned = UNET_WIDTHS[::-1]
        self.widens = nn.ModuleList(
            nn.ConvTranspose2d(before, after, 2, stride=2)
            for before, after in itertools.pairwise(turned)
        )
        self.ups = nn.ModuleList(double_convolution(2 * after, after) for after in turned[1:])
        self.head = nn.Conv2d(UNET_WIDTHS[0], UNET_CLASSES, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        beside = [self.enter(image)]
        for down in self.downs:
            beside.append(down(nn.functional.max_pool2d(beside[-1], 2)))
        x = beside.pop()
        for widen, up in zip(self.widens, self.ups):
            x = up(torch.cat((widen(x), beside.pop()), dim=1))
        return self.head(x)


unet = Recipe(UNet, images, (32, 48, 64, 96), 64, "image side", pixel_class_loss)


# A one-stage detector with non-maximum suppression. The number of boxes depends on the image,
# except in training, which uses all positions.
DETECTED_CLASSES, STRIDE, DETECTOR_WIDTH = 4, 8, 64
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
            ConvNorm(32, DETECTOR_WIDTH, stride=2),
            ConvNorm(DETECTOR_WIDTH, DETECTOR_WIDTH),
        )
        self.score, self.distance = (
            nn.Conv2d(DETECTOR_WIDTH, DETECTED_CLASSES, 3, padding=1),
            nn.Conv2d(DETECTOR_WIDTH, 4, 3, padding=1),
        )
        nn.init.normal_(
            self.score.weight, std=0.1
        )  # widely spread scores: none lies at the threshold by chance

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


detector = Recipe(Detector, images, (64, 96, 160), 128, "image side", detection_loss)


# A diffusion model's denoiser: a small U-Net conditioned on time step and class.
DRAWN_CLASSES, STEPS, DENOISER_WIDTH, CONDITION_WIDTH = 10, 1000, 32, 128


def time_embedding(step: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    half = CONDITION_WIDTH // 2
    frequencies = 10_000.0 ** (-torch.arange(half, device=step.device, dtype=like.dtype) / half)
    angles = step[:, None].to(like.dtype) * frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


class ConditionedBlock(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first_norm, self.first = (
            nn.GroupNorm(8, before),
            nn.Conv2d(before, after, 3, padding=1),
        )
        self.second_norm, self.second = (
            nn.GroupNorm(8, after),
            nn.Conv2d(after, after, 3, padding=1),
        )
        self.condition = nn.Linear(CONDITION_WIDTH, 2 * after)
        self.shortcut = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        scale, shift = self.condition(embedding)[:, :, None, None].chunk(2, dim=1)
        y = self.first(F.silu(self.first_norm(x)))
        y = self.second(F.silu(self.second_norm(y) * (1 + scale) + shift))
        return self.shortcut(x) + y


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(
            nn.Linear(CONDITION_WIDTH, CONDITION_WIDTH),
            nn.SiLU(),
            nn.Linear(CONDITION_WIDTH, CONDITION_WIDTH),
        )
        self.label = nn.Embedding(DRAWN_CLASSES, CONDITION_WIDTH)
        self.enter = nn.Conv2d(3, DENOISER_WIDTH, 3, padding=1)
        self.down, self.halve = (
            ConditionedBlock(DENOISER_WIDTH, DENOISER_WIDTH),
            nn.Conv2d(DENOISER_WIDTH, 2 * DENOISER_WIDTH, 3, 2, padding=1),
        )
        self.middle = ConditionedBlock(2 * DENOISER_WIDTH, 2 * DENOISER_WIDTH)
        self.attention_norm, self.attention = (
            nn.LayerNorm(2 * DENOISER_WIDTH),
            FusedAttention(2 * DENOISER_WIDTH, 4),
        )
        self.up = ConditionedBlock(3 * DENOISER_WIDTH, DENOISER_WIDTH)
        self.leave_norm, self.leave = (
            nn.GroupNorm(8, DENOISER_WIDTH),
            nn.Conv2d(DENOISER_WIDTH, 3, 3, padding=1),
        )

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        pixels = x.flatten(2).transpose(1, 2)
        pixels = pixels + self.attention(self.attention_norm(pixels))
        return pixels.transpose(1, 2).reshape_as(x)

    def forward(self, image: torch.Tensor, step: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        embedding = self.time(time_embedding(step, image)) + self.label(label)
        outer = self.down(self.enter(image), embedding)
        inner = self.attend(self.middle(self.halve(outer), embedding))
        x = torch.cat((F.interpolate(inner, scale_factor=2.0, mode="nearest"), outer), dim=1)
        return self.leave(F.silu(self.leave_norm(self.up(x, embedding))))


def noisy_images(batch_size: int, side: int) -> Inputs:
    return {
        "image": torch.randn(batch_size, 3, side, side),
        "step": torch.randint(STEPS, (batch_size,)),
        "label": torch.randint(DRAWN_CLASSES, (batch_size,)),
    }


diffusion = Recipe(Denoiser, noisy_images, (16, 24, 48), 32, "image side", pattern_loss)


# A convolutional autoencoder; in training its graph draws random numbers.
VAE_IMAGE, VAE_LATENT, VAE_WIDTH = 32, 32, 32


class VariationalAutoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        side = VAE_IMAGE // 4
        self.encoder = nn.Sequential(
            nn.Conv2d(3, VAE_WIDTH, 4, 2, padding=1),
            nn.SiLU(),
            nn.Conv2d(VAE_WIDTH, 2 * VAE_WIDTH, 4, 2, padding=1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(2 * VAE_WIDTH * side * side, 2 * VAE_LATENT),
        )
        self.decoder = nn.Sequential(
            nn.Linear(VAE_LATENT, 2 * VAE_WIDTH * side * side),
            nn.Unflatten(1, (2 * VAE_WIDTH, side, side)),
            nn.SiLU(),
            nn.ConvTranspose2d(2 * VAE_WIDTH, VAE_WIDTH, 4, 2, padding=1),
            nn.SiLU(),
            nn.ConvTranspose2d(VAE_WIDTH, 3, 4, 2, padding=1),
        )

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        mean, log_variance = self.encoder(image).chunk(2, dim=-1)
        spread = torch.exp(0.5 * log_variance)
        latent = mean + spread * torch.randn_like(spread) if self.training else mean
        painted = self.decoder(latent)
        surprise = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(dim=-1)
        return {
            "painted": painted,
            "error": F.mse_loss(painted, image),
            "surprise": surprise.mean(),
        }


def evidence_loss(output: dict[str, Any]) -> torch.Tensor:
    return output["error"] + 1e-3 * output["surprise"]


variational_autoencoder = Recipe(
    VariationalAutoencoder,
    lambda _batch_size, count: images(count, VAE_IMAGE),
    (4, 8, 24, 32),
    loss=evidence_loss,
)
