"""A KV cache whose fill level is a Python int that grows with each decoded token.

Reported: meta-pytorch/torchtune#1663
Right: Keep the position as a tensor and index with it; or let it be dynamic: it compiles for the
first values and then no more.
Harm: A cache that is overwritten at the wrong place.
"""

import torch
from torch import nn


class KVCache(nn.Module):
    def __init__(self, max_length, size):
        super().__init__()
        self.register_buffer("k", torch.zeros(1, max_length, size))
        self.register_buffer("v", torch.zeros(1, max_length, size))
        self.size = 0

    def update(self, k, v):
        length = k.shape[1]
        self.k[:, self.size : self.size + length] = k
        self.v[:, self.size : self.size + length] = v
        self.size += length
        return self.k, self.v


class Decoder(nn.Module):
    def __init__(self, vocab=10, size=8, max_length=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.qkv = nn.Linear(size, 3 * size)
        self.head = nn.Linear(size, vocab)
        self.kv_cache = KVCache(max_length, size)
        self.max_length = max_length

    def forward(self, token, mask):
        q, k, v = self.qkv(self.embed(token)).chunk(3, -1)
        k, v = self.kv_cache.update(k, v)
        scores = (q @ k.transpose(1, 2)).masked_fill(~mask, float("-inf"))
        return self.head(scores.softmax(-1) @ v)


def generate(model, token, count):
    tokens = []
    for position in range(count):
        mask = torch.arange(16).view(1, 1, -1) <= position
        token = model(token, mask).argmax(-1)
        tokens.append(token.item())
    return tokens


torch.manual_seed(0)
model = Decoder()
with torch.no_grad():
    tokens = generate(torch.compile(model, backend="eager", dynamic=False), torch.tensor([[3]]), 8)
print(tokens)
result = [tokens, model.kv_cache.k.clone()]
