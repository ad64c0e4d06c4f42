"""A recurrent language model: torch's own LSTM in two layers between an embedding and a head."""

from __future__ import annotations

import torch
from torch import nn

from collectors.bench.loaded import Loaded
from collectors.bench.suites.builtin.recipe import assemble, class_loss

VOCABULARY, WIDTH, DEPTH = 1024, 192, 2


class LSTM(nn.Module):
    """Score the next token after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.recurrence = nn.LSTM(WIDTH, WIDTH, DEPTH, batch_first=True)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        states, _ = self.recurrence(self.embedding(tokens))
        return self.head(self.norm(states))


def build(batch_size: int) -> Loaded:
    """Build the model; the number of steps varies."""

    def make_inputs(steps: int) -> tuple[torch.Tensor]:
        return (torch.randint(VOCABULARY, (batch_size, steps)),)

    sizes, name = (8, 24, 48, 64), "sequence length"
    return assemble(LSTM, make_inputs, 32, batch_size=batch_size, sizes=sizes, size_name=name, loss=class_loss)
