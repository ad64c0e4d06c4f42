"""A BERT-like masked language model for padded sequences of different lengths."""

from __future__ import annotations

import torch
from torch import nn

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.layers import PreNormBlock, TokenEmbedding
from compileboard.collectors.bench.suites.builtin.recipe import assemble, class_loss

VOCABULARY, LONGEST, WIDTH, HEADS, DEPTH = 2048, 128, 192, 4, 3


class TransformerEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(VOCABULARY, LONGEST, WIDTH)
        self.blocks = nn.ModuleList(PreNormBlock(WIDTH, HEADS) for _ in range(DEPTH))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor, is_word: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        mask = is_word[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.head(self.norm(x))


def build(batch_size: int) -> Loaded:
    def make_inputs(length: int) -> tuple[torch.Tensor, ...]:
        tokens = torch.randint(VOCABULARY, (batch_size, length))
        lengths = torch.randint(length // 2, length + 1, (batch_size, 1))
        return tokens, torch.arange(length) < lengths

    return assemble(
        TransformerEncoder,
        make_inputs,
        64,
        batch_size=batch_size,
        sizes=(16, 48, 96, 128),
        size_name="sequence length",
        loss=class_loss,
    )
