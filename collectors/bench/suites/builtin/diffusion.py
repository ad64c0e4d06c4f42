"""A diffusion model's denoiser: a small U-Net conditioned on time step and class."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.layers import FusedAttention
from compileboard.collectors.bench.suites.builtin.recipe import assemble, pattern_loss

CLASSES, STEPS, WIDTH, TOLD = 10, 1000, 32, 128


def time_embedding(step: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    half = TOLD // 2
    frequencies = 10_000.0 ** (-torch.arange(half, device=step.device, dtype=like.dtype) / half)
    angles = step[:, None].to(like.dtype) * frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


class ToldBlock(nn.Module):
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
        self.told = nn.Linear(TOLD, 2 * after)
        self.shortcut = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        scale, shift = self.told(embedding)[:, :, None, None].chunk(2, dim=1)
        y = self.first(F.silu(self.first_norm(x)))
        y = self.second(F.silu(self.second_norm(y) * (1 + scale) + shift))
        return self.shortcut(x) + y


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(TOLD, TOLD), nn.SiLU(), nn.Linear(TOLD, TOLD))
        self.label = nn.Embedding(CLASSES, TOLD)
        self.enter = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.down, self.halve = (
            ToldBlock(WIDTH, WIDTH),
            nn.Conv2d(WIDTH, 2 * WIDTH, 3, 2, padding=1),
        )
        self.middle = ToldBlock(2 * WIDTH, 2 * WIDTH)
        self.attention_norm, self.attention = nn.LayerNorm(2 * WIDTH), FusedAttention(2 * WIDTH, 4)
        self.up = ToldBlock(3 * WIDTH, WIDTH)
        self.leave_norm, self.leave = nn.GroupNorm(8, WIDTH), nn.Conv2d(WIDTH, 3, 3, padding=1)

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


def build(batch_size: int) -> Loaded:
    def make_inputs(side: int) -> dict[str, torch.Tensor]:
        return {
            "image": torch.randn(batch_size, 3, side, side),
            "step": torch.randint(STEPS, (batch_size,)),
            "label": torch.randint(CLASSES, (batch_size,)),
        }

    return assemble(
        Denoiser,
        make_inputs,
        32,
        batch_size=batch_size,
        sizes=(16, 24, 48),
        size_name="image side",
        loss=pattern_loss,
    )
