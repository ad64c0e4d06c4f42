"""Generation with a cache that is concatenated: a prompt, then one token at a time.

Reported: huggingface/transformers#37908
Right: A static cache, or the cache's length marked dynamic; prefill and decode are two graphs in
any case.
Harm: Padding the single token, which changes the answers.
"""

import torch
from torch import nn
from torch.nn import functional as F


class DynamicCache:
    def __init__(self, depth):
        self.keys = [None] * depth
        self.values = [None] * depth

    def update(self, k, v, layer):
        if self.keys[layer] is not None:
            k = torch.cat([self.keys[layer], k], dim=1)
            v = torch.cat([self.values[layer], v], dim=1)
        self.keys[layer], self.values[layer] = k, v
        return k, v


class Layer(nn.Module):
    def __init__(self, size, index):
        super().__init__()
        self.index = index
        self.qkv = nn.Linear(size, 3 * size)

    def forward(self, x, cache):
        q, k, v = self.qkv(x).chunk(3, -1)
        k, v = cache.update(k, v, self.index)
        return x + F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[1] > 1)


class Model(nn.Module):
    def __init__(self, vocab=14, size=8, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.layers = nn.ModuleList(Layer(size, n) for n in range(depth))
        self.head = nn.Linear(size, vocab)

    def forward(self, ids, cache):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, cache)
        return self.head(x[:, -1])


torch.manual_seed(0)
model = torch.compile(Model(), backend="eager")
result = []
with torch.no_grad():
    for prompt in (6, 6, 9):
        ids, cache = torch.arange(prompt).view(1, -1), DynamicCache(2)
        tokens = []
        for _ in range(5):
            ids = model(ids, cache).argmax(-1, keepdim=True)
            tokens.append(ids.item())
        result.append(tokens)
