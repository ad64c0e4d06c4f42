"""Layers shared by this suite's transformers: fused attention and pre-norm blocks."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class FusedAttention(nn.Module):
    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """Shape: (batch, length, width) to (batch, heads, length, head width)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(
        self, x: torch.Tensor, memory: torch.Tensor | None = None, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        key, value = self.key_value(x if memory is None else memory).chunk(2, dim=-1)
        attended = F.scaled_dot_product_attention(
            self.split(self.query(x)),
            self.split(key),
            self.split(value),
            attn_mask=mask,
            is_causal=self.causal,
        )
        return self.out(attended.transpose(1, 2).flatten(-2))


class FeedForward(nn.Sequential):
    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class PreNormBlock(nn.Module):
    def __init__(
        self, width: int, heads: int, *, causal: bool = False, cross: bool = False
    ) -> None:
        super().__init__()
        self.attention_norm, self.attention = (
            nn.LayerNorm(width),
            FusedAttention(width, heads, causal=causal),
        )
        self.cross_norm = nn.LayerNorm(width) if cross else nn.Identity()
        self.cross = FusedAttention(width, heads) if cross else None
        self.feed_forward_norm, self.feed_forward = nn.LayerNorm(width), FeedForward(width)

    def forward(
        self, x: torch.Tensor, memory: torch.Tensor | None = None, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), mask=mask)
        if self.cross is not None:
            x = x + self.cross(self.cross_norm(x), memory)
        return x + self.feed_forward(self.feed_forward_norm(x))


class TokenEmbedding(nn.Module):
    def __init__(self, vocabulary: int, longest: int, width: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Shape: (batch, length) to (batch, length, width)."""
        return self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
