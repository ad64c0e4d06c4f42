"""A recurrent language model with torch's LSTM.

Dynamo does not compile an LSTM and skips the whole function that calls one, so the recurrence runs
eagerly in its own method, and the rest is compiled.
"""

from __future__ import annotations

import torch
from torch import nn

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.recipe import assemble, class_loss

VOCABULARY, WIDTH, DEPTH = 1024, 192, 2


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.recurrence = nn.LSTM(WIDTH, WIDTH, DEPTH, batch_first=True)
        self.gate = nn.Linear(WIDTH, WIDTH)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    @torch.compiler.disable
    def recur(self, steps: torch.Tensor) -> torch.Tensor:
        return self.recurrence(steps)[0]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        steps = self.embedding(tokens)
        states = self.recur(steps * torch.sigmoid(self.gate(steps)))
        return self.head(self.norm(states + steps))


def build(batch_size: int) -> Loaded:
    def make_inputs(steps: int) -> tuple[torch.Tensor]:
        return (torch.randint(VOCABULARY, (batch_size, steps)),)

    return assemble(
        LSTM,
        make_inputs,
        32,
        batch_size=batch_size,
        sizes=(8, 24, 48, 64),
        size_name="sequence length",
        loss=class_loss,
    )
