"""A GPT-like language model: causal attention, rotary positions, RMS norm, gated feed-forward.

`build` trains and scores whole sequences; `build_cached` serves with a key-value
cache kept in the module.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.recipe import assemble, class_loss

VOCABULARY, WIDTH, HEADS, DEPTH = 2048, 192, 4, 3
LONGEST = 256  # what the cache holds


def rotate(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rotate pairs of features by angles of their position. Shape: (batch, heads, length, head
    width).
    """
    half = x.shape[-1] // 2
    frequencies = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    angles = positions[:, None].to(x.dtype) * frequencies
    left, right = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((left * cos - right * sin, left * sin + right * cos), dim=-1)


class GatedFeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.widen, self.narrow = (
            nn.Linear(width, 6 * width, bias=False),
            nn.Linear(3 * width, width, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = self.widen(x).chunk(2, dim=-1)
        return self.narrow(F.silu(gate) * value)


class RotaryAttention(nn.Module):
    def __init__(self, width: int, heads: int, cache_batch: int | None) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value, self.out = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.cached = cache_batch is not None
        if cache_batch is not None:  # as in the middle of a long text
            shape = (cache_batch, heads, LONGEST, width // heads)
            self.register_buffer("keys", torch.randn(shape), persistent=False)
            self.register_buffer("values", torch.randn(shape), persistent=False)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.query_key_value(x).chunk(3, dim=-1)
        )
        query, key = rotate(query, positions), rotate(key, positions)
        if self.cached:
            keys, values = self.remember(key, value, positions)
            mask = torch.arange(LONGEST, device=x.device) <= positions[:, None]
            attended = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        else:
            attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(attended.transpose(1, 2).flatten(-2))

    def remember(
        self, key: torch.Tensor, value: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys.index_copy_(2, positions, key.to(self.keys.dtype))
        self.values.index_copy_(2, positions, value.to(self.values.dtype))
        return self.keys.to(key.dtype), self.values.to(value.dtype)


class DecoderBlock(nn.Module):
    def __init__(self, cache_batch: int | None) -> None:
        super().__init__()
        self.attention_norm, self.attention = (
            nn.RMSNorm(WIDTH),
            RotaryAttention(WIDTH, HEADS, cache_batch),
        )
        self.feed_forward_norm, self.feed_forward = nn.RMSNorm(WIDTH), GatedFeedForward(WIDTH)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), positions)
        return x + self.feed_forward(self.feed_forward_norm(x))


class TransformerDecoder(nn.Module):
    def __init__(self, cache_batch: int | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(DecoderBlock(cache_batch) for _ in range(DEPTH))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, positions)
        return self.head(self.norm(x))


def build(batch_size: int) -> Loaded:
    def make_inputs(length: int) -> tuple[torch.Tensor]:
        return (torch.randint(VOCABULARY, (batch_size, length)),)

    return assemble(
        TransformerDecoder,
        make_inputs,
        64,
        batch_size=batch_size,
        sizes=(16, 48, 96, 128),
        size_name="sequence length",
        loss=class_loss,
    )


def build_cached(batch_size: int) -> Loaded:
    def make_inputs(count: int) -> tuple[torch.Tensor, ...]:
        return torch.randint(VOCABULARY, (batch_size, count)), torch.arange(100, 100 + count)

    return assemble(
        lambda: TransformerDecoder(batch_size),
        make_inputs,
        1,
        batch_size=batch_size,
        sizes=(1, 4, 16, 64),
        size_name="tokens at once",
    )
