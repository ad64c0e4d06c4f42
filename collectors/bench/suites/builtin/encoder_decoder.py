"""A T5-like translator: encoder, and a causal decoder with cross-attention."""

from __future__ import annotations

import torch
from torch import nn

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.layers import PreNormBlock, TokenEmbedding
from compileboard.collectors.bench.suites.builtin.recipe import assemble, class_loss

VOCABULARY, LONGEST, WIDTH, HEADS, DEPTH = 1024, 128, 192, 4, 2
WRITTEN = 32  # tokens that the decoder has written


class EncoderDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read, self.write = (TokenEmbedding(VOCABULARY, LONGEST, WIDTH) for _ in range(2))
        self.encoder = nn.ModuleList(PreNormBlock(WIDTH, HEADS) for _ in range(DEPTH))
        self.decoder = nn.ModuleList(
            PreNormBlock(WIDTH, HEADS, causal=True, cross=True) for _ in range(DEPTH)
        )
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def encode(self, source: torch.Tensor) -> torch.Tensor:
        x = self.read(source)
        for block in self.encoder:
            x = block(x)
        return self.encoder_norm(x)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory, x = self.encode(source), self.write(target)
        for block in self.decoder:
            x = block(x, memory)
        return self.head(self.decoder_norm(x))


def build(batch_size: int) -> Loaded:
    def make_inputs(length: int) -> dict[str, torch.Tensor]:
        return {
            "source": torch.randint(VOCABULARY, (batch_size, length)),
            "target": torch.randint(VOCABULARY, (batch_size, WRITTEN)),
        }

    return assemble(
        EncoderDecoder,
        make_inputs,
        48,
        batch_size=batch_size,
        sizes=(16, 32, 64, 128),
        size_name="source length",
        loss=class_loss,
    )
