"""A language model with mixture-of-experts layers: a router picks two experts for each token.

The shapes inside depend on the router's data, which breaks the graph, as in real models of this
kind.
"""

from __future__ import annotations

import torch
from torch import nn

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.layers import (
    FeedForward,
    FusedAttention,
    TokenEmbedding,
)
from compileboard.collectors.bench.suites.builtin.recipe import assemble, class_loss

VOCABULARY, LONGEST, WIDTH, HEADS, DEPTH = 1024, 128, 128, 4, 2
EXPERTS, ACTIVE = 4, 2


class SparseExperts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(FeedForward(WIDTH) for _ in range(EXPERTS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, -2)
        weights, chosen = self.router(tokens).softmax(dim=-1).topk(ACTIVE, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        mixed = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, slots = torch.where(chosen == number)
            weighted = expert(tokens[rows]) * weights[rows, slots].unsqueeze(-1)
            mixed.index_add_(0, rows, weighted.to(mixed.dtype))
        return mixed.view_as(x)


class ExpertBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.attention = (
            nn.LayerNorm(WIDTH),
            FusedAttention(WIDTH, HEADS, causal=True),
        )
        self.experts_norm, self.experts = nn.LayerNorm(WIDTH), SparseExperts()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.experts(self.experts_norm(x))


class MixtureOfExperts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(VOCABULARY, LONGEST, WIDTH)
        self.blocks = nn.Sequential(*(ExpertBlock() for _ in range(DEPTH)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.embedding(tokens))))


def build(batch_size: int) -> Loaded:
    def make_inputs(length: int) -> tuple[torch.Tensor]:
        return (torch.randint(VOCABULARY, (batch_size, length)),)

    return assemble(
        MixtureOfExperts,
        make_inputs,
        64,
        batch_size=batch_size,
        sizes=(16, 48, 96, 128),
        size_name="sequence length",
        loss=class_loss,
    )
