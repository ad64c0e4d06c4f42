"""A convolutional variational autoencoder; in training the graph draws random numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.recipe import assemble

IMAGE, LATENT, WIDTH = 32, 32, 32


class VariationalAutoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        side = IMAGE // 4
        self.encoder = nn.Sequential(
            nn.Conv2d(3, WIDTH, 4, 2, padding=1),
            nn.SiLU(),
            nn.Conv2d(WIDTH, 2 * WIDTH, 4, 2, padding=1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(2 * WIDTH * side * side, 2 * LATENT),
        )
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, 2 * WIDTH * side * side),
            nn.Unflatten(1, (2 * WIDTH, side, side)),
            nn.SiLU(),
            nn.ConvTranspose2d(2 * WIDTH, WIDTH, 4, 2, padding=1),
            nn.SiLU(),
            nn.ConvTranspose2d(WIDTH, 3, 4, 2, padding=1),
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


def build(batch_size: int) -> Loaded:
    def make_inputs(batch: int) -> tuple[torch.Tensor]:
        return (torch.randn(batch, 3, IMAGE, IMAGE),)

    sizes = (4, 8, 24, 32)
    return assemble(
        VariationalAutoencoder,
        make_inputs,
        batch_size,
        batch_size=batch_size,
        sizes=sizes,
        loss=evidence_loss,
    )
