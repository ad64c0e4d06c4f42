"""Layers, losses and example inputs of the built-in models, and the recipe that builds one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from compileboard.collectors.bench.loaded import Inputs, Loaded

SEED = 1337


@contextmanager
def fixed_seed() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        yield


@dataclass(frozen=True)
class Recipe:
    """A built-in model's constructor and inputs; called with a batch size, it builds the model."""

    module: Callable[[], nn.Module]
    inputs: Callable[[int, int], Inputs]  # takes a batch size and one of `sizes`
    sizes: tuple[int, ...]
    size: int | None = None  # None: the batch size
    size_name: str = "batch size"
    loss: Callable[..., torch.Tensor] | None = None

    def __call__(self, batch_size: int) -> Loaded:
        def resize(size: int) -> Inputs:
            with fixed_seed():
                return self.inputs(batch_size, size)

        with fixed_seed():
            module = self.module()
        inputs = resize(batch_size if self.size is None else self.size)
        return Loaded(module, inputs, self.loss, batch_size, resize, self.size_name, self.sizes)


def images(batch_size: int, side: int) -> tuple[torch.Tensor]:
    return (torch.randn(batch_size, 3, side, side),)


def class_loss(logits: torch.Tensor) -> torch.Tensor:
    logits = logits.flatten(0, -2)
    targets = torch.arange(logits.shape[0], device=logits.device) % logits.shape[1]
    return F.cross_entropy(logits, targets)


def pixel_class_loss(logits: torch.Tensor) -> torch.Tensor:
    return class_loss(logits.movedim(1, -1))


def click_loss(logits: torch.Tensor) -> torch.Tensor:
    targets = torch.arange(logits.numel(), device=logits.device) % 2
    return F.binary_cross_entropy_with_logits(logits.flatten(), targets.to(logits.dtype))


def pattern_loss(output: torch.Tensor) -> torch.Tensor:
    ramp = torch.linspace(-1, 1, output.numel(), device=output.device, dtype=output.dtype)
    return F.mse_loss(output, ramp.view_as(output))


class ConvNorm(nn.Sequential):
    def __init__(
        self, before: int, after: int, *, size: int = 3, stride: int = 1, bend: bool = True
    ) -> None:
        super().__init__(
            nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True) if bend else nn.Identity(),
        )
        nn.init.kaiming_normal_(
            self[0].weight, nonlinearity="relu"
        )  # keeps the features' size in eval mode too


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
