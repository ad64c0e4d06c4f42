"""A recurrent language model: torch's own LSTM in two layers between an embedding and a head.

Dynamo compiles no LSTM, and skips the whole function that touches one. So the recurrence runs eagerly in a method of
its own, as people do it, and what is around it is compiled.
"""

from __future__ import annotations

import torch
from torch import nn

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.recipe import assemble, class_loss

VOCABULARY, WIDTH, DEPTH = 1024, 192, 2


class LSTM(nn.Module):
    """Scores of the next token after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.recurrence = nn.LSTM(WIDTH, WIDTH, DEPTH, batch_first=True)
        self.gate = nn.Linear(WIDTH, WIDTH)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    @torch.compiler.disable
    def recur(self, steps: torch.Tensor) -> torch.Tensor:
        """Return the state after each step."""
        return self.recurrence(steps)[0]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        steps = self.embedding(tokens)
        states = self.recur(steps * torch.sigmoid(self.gate(steps)))
        return self.head(self.norm(states + steps))


def build(batch_size: int) -> Loaded:
    """Build the model; the number of steps varies."""

    def make_inputs(steps: int) -> tuple[torch.Tensor]:
        return (torch.randint(VOCABULARY, (batch_size, steps)),)

    sizes, name = (8, 24, 48, 64), "sequence length"
    return assemble(LSTM, make_inputs, 32, batch_size=batch_size, sizes=sizes, size_name=name, loss=class_loss)
