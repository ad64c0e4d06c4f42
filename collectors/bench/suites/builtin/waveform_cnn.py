"""A WaveNet-like audio model: gated, dilated, causal 1D convolutions."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.recipe import assemble, class_loss

LEVELS, WIDTH, DILATIONS = 64, 48, (1, 2, 4, 8)


class GatedLayer(nn.Module):
    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.reach = 2 * dilation  # a kernel of three looks this far back
        self.look = weight_norm(nn.Conv1d(WIDTH, 2 * WIDTH, 3, dilation=dilation))
        self.out = weight_norm(nn.Conv1d(WIDTH, WIDTH, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = self.look(F.pad(x, (self.reach, 0))).chunk(2, dim=1)
        return x + self.out(torch.tanh(value) * torch.sigmoid(gate))


class WaveformCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv1d(1, WIDTH, 1)
        self.layers = nn.Sequential(*(GatedLayer(dilation) for dilation in DILATIONS))
        self.head = nn.Conv1d(WIDTH, LEVELS, 1)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        """Shape: (batch, 1, samples) to logits (batch, samples, levels)."""
        return self.head(torch.relu(self.layers(self.enter(sound)))).transpose(1, 2)


def build(batch_size: int) -> Loaded:
    def make_inputs(samples: int) -> tuple[torch.Tensor]:
        return (torch.randn(batch_size, 1, samples),)

    return assemble(
        WaveformCNN,
        make_inputs,
        1024,
        batch_size=batch_size,
        sizes=(256, 512, 1536, 2048),
        size_name="samples",
        loss=class_loss,
    )
