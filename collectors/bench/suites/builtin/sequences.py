"""Models of token sequences and of sound."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from compileboard.collectors.bench.loaded import Inputs, Loaded
from compileboard.collectors.bench.suites.builtin.parts import (
    FeedForward,
    FusedAttention,
    PreNormBlock,
    Recipe,
    TokenEmbedding,
    class_loss,
)


def tokens(vocabulary: int) -> Callable[[int, int], Inputs]:
    return lambda batch_size, length: (torch.randint(vocabulary, (batch_size, length)),)


# A BERT-like masked language model for padded sequences of different lengths.
ENCODER_VOCABULARY, ENCODER_LONGEST, ENCODER_WIDTH, ENCODER_HEADS, ENCODER_DEPTH = (
    2048,
    128,
    192,
    4,
    3,
)


class TransformerEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(ENCODER_VOCABULARY, ENCODER_LONGEST, ENCODER_WIDTH)
        self.blocks = nn.ModuleList(
            PreNormBlock(ENCODER_WIDTH, ENCODER_HEADS) for _ in range(ENCODER_DEPTH)
        )
        self.norm, self.head = (
            nn.LayerNorm(ENCODER_WIDTH),
            nn.Linear(ENCODER_WIDTH, ENCODER_VOCABULARY),
        )

    def forward(self, tokens: torch.Tensor, is_word: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        mask = is_word[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.head(self.norm(x))


def padded_tokens(batch_size: int, length: int) -> Inputs:
    tokens = torch.randint(ENCODER_VOCABULARY, (batch_size, length))
    lengths = torch.randint(length // 2, length + 1, (batch_size, 1))
    return tokens, torch.arange(length) < lengths


transformer_encoder = Recipe(
    TransformerEncoder, padded_tokens, (16, 48, 96, 128), 64, "sequence length", class_loss
)


# A GPT-like language model: causal attention, rotary positions, RMS norm, gated feed-forward. The
# cached one serves with a key-value cache kept in the module, and does not train.
DECODER_VOCABULARY, DECODER_WIDTH, DECODER_HEADS, DECODER_DEPTH = 2048, 192, 4, 3
CACHE_LENGTH = 256  # capacity of the cache


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
            shape = (cache_batch, heads, CACHE_LENGTH, width // heads)
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
            mask = torch.arange(CACHE_LENGTH, device=x.device) <= positions[:, None]
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
            nn.RMSNorm(DECODER_WIDTH),
            RotaryAttention(DECODER_WIDTH, DECODER_HEADS, cache_batch),
        )
        self.feed_forward_norm, self.feed_forward = (
            nn.RMSNorm(DECODER_WIDTH),
            GatedFeedForward(DECODER_WIDTH),
        )

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), positions)
        return x + self.feed_forward(self.feed_forward_norm(x))


class TransformerDecoder(nn.Module):
    def __init__(self, cache_batch: int | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(DECODER_VOCABULARY, DECODER_WIDTH)
        self.blocks = nn.ModuleList(DecoderBlock(cache_batch) for _ in range(DECODER_DEPTH))
        self.norm, self.head = (
            nn.RMSNorm(DECODER_WIDTH),
            nn.Linear(DECODER_WIDTH, DECODER_VOCABULARY, bias=False),
        )
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, positions)
        return self.head(self.norm(x))


transformer_decoder = Recipe(
    TransformerDecoder,
    tokens(DECODER_VOCABULARY),
    (16, 48, 96, 128),
    64,
    "sequence length",
    class_loss,
)


def next_tokens(batch_size: int, count: int) -> Inputs:
    return torch.randint(DECODER_VOCABULARY, (batch_size, count)), torch.arange(100, 100 + count)


def cached_decoder(batch_size: int) -> Loaded:
    recipe = Recipe(
        lambda: TransformerDecoder(batch_size), next_tokens, (1, 4, 16, 64), 1, "tokens at once"
    )
    return recipe(batch_size)


# A T5-like translator: encoder, and a causal decoder with cross-attention.
TRANSLATOR_VOCABULARY, TRANSLATOR_LONGEST, TRANSLATOR_WIDTH, TRANSLATOR_HEADS, TRANSLATOR_DEPTH = (
    1024,
    128,
    192,
    4,
    2,
)
WRITTEN_LENGTH = 32  # tokens written by the decoder


class EncoderDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read, self.write = (
            TokenEmbedding(TRANSLATOR_VOCABULARY, TRANSLATOR_LONGEST, TRANSLATOR_WIDTH)
            for _ in range(2)
        )
        self.encoder = nn.ModuleList(
            PreNormBlock(TRANSLATOR_WIDTH, TRANSLATOR_HEADS) for _ in range(TRANSLATOR_DEPTH)
        )
        self.decoder = nn.ModuleList(
            PreNormBlock(TRANSLATOR_WIDTH, TRANSLATOR_HEADS, causal=True, cross=True)
            for _ in range(TRANSLATOR_DEPTH)
        )
        self.encoder_norm, self.decoder_norm = (
            nn.LayerNorm(TRANSLATOR_WIDTH),
            nn.LayerNorm(TRANSLATOR_WIDTH),
        )
        self.head = nn.Linear(TRANSLATOR_WIDTH, TRANSLATOR_VOCABULARY)

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


def sentence_pairs(batch_size: int, length: int) -> Inputs:
    return {
        "source": torch.randint(TRANSLATOR_VOCABULARY, (batch_size, length)),
        "target": torch.randint(TRANSLATOR_VOCABULARY, (batch_size, WRITTEN_LENGTH)),
    }


encoder_decoder = Recipe(
    EncoderDecoder, sentence_pairs, (16, 32, 64, 128), 48, "source length", class_loss
)


# Mixture of experts: a router picks two experts for each token. The shapes inside depend on the
# router's data, which breaks the graph, as in real models of this kind.
MOE_VOCABULARY, MOE_LONGEST, MOE_WIDTH, MOE_HEADS, MOE_DEPTH = 1024, 128, 128, 4, 2
EXPERTS, ACTIVE = 4, 2


class SparseExperts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(MOE_WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(FeedForward(MOE_WIDTH) for _ in range(EXPERTS))

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
            nn.LayerNorm(MOE_WIDTH),
            FusedAttention(MOE_WIDTH, MOE_HEADS, causal=True),
        )
        self.experts_norm, self.experts = nn.LayerNorm(MOE_WIDTH), SparseExperts()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.experts(self.experts_norm(x))


class MixtureOfExperts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(MOE_VOCABULARY, MOE_LONGEST, MOE_WIDTH)
        self.blocks = nn.Sequential(*(ExpertBlock() for _ in range(MOE_DEPTH)))
        self.norm, self.head = nn.LayerNorm(MOE_WIDTH), nn.Linear(MOE_WIDTH, MOE_VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.embedding(tokens))))


mixture_of_experts = Recipe(
    MixtureOfExperts, tokens(MOE_VOCABULARY), (16, 48, 96, 128), 64, "sequence length", class_loss
)


# Dynamo does not compile an LSTM and skips the whole function that calls one, so the recurrence
# runs eagerly in its own method, and the rest is compiled.
LSTM_VOCABULARY, LSTM_WIDTH, LSTM_DEPTH = 1024, 192, 2


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LSTM_VOCABULARY, LSTM_WIDTH)
        self.recurrence = nn.LSTM(LSTM_WIDTH, LSTM_WIDTH, LSTM_DEPTH, batch_first=True)
        self.gate = nn.Linear(LSTM_WIDTH, LSTM_WIDTH)
        self.norm, self.head = nn.LayerNorm(LSTM_WIDTH), nn.Linear(LSTM_WIDTH, LSTM_VOCABULARY)

    @torch.compiler.disable
    def recur(self, steps: torch.Tensor) -> torch.Tensor:
        return self.recurrence(steps)[0]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        steps = self.embedding(tokens)
        states = self.recur(steps * torch.sigmoid(self.gate(steps)))
        return self.head(self.norm(states + steps))


lstm = Recipe(LSTM, tokens(LSTM_VOCABULARY), (8, 24, 48, 64), 32, "sequence length", class_loss)


# A WaveNet-like audio model: gated, dilated, causal 1D convolutions.
SOUND_LEVELS, SOUND_WIDTH, DILATIONS = 64, 48, (1, 2, 4, 8)


class GatedLayer(nn.Module):
    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.reach = 2 * dilation  # a kernel of three looks this far back
        self.look = weight_norm(nn.Conv1d(SOUND_WIDTH, 2 * SOUND_WIDTH, 3, dilation=dilation))
        self.out = weight_norm(nn.Conv1d(SOUND_WIDTH, SOUND_WIDTH, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = self.look(F.pad(x, (self.reach, 0))).chunk(2, dim=1)
        return x + self.out(torch.tanh(value) * torch.sigmoid(gate))


class WaveformCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv1d(1, SOUND_WIDTH, 1)
        self.layers = nn.Sequential(*(GatedLayer(dilation) for dilation in DILATIONS))
        self.head = nn.Conv1d(SOUND_WIDTH, SOUND_LEVELS, 1)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        """Shape: (batch, 1, samples) to logits (batch, samples, levels)."""
        return self.head(torch.relu(self.layers(self.enter(sound)))).transpose(1, 2)


waveform_cnn = Recipe(
    WaveformCNN,
    lambda batch_size, samples: (torch.randn(batch_size, 1, samples),),
    (256, 512, 1536, 2048),
    1024,
    "samples",
    class_loss,
)
