"""Generation that copies its config before it overrides fields of it.

Reported: pytorch/pytorch#149970
Right: Copy the config in the caller (or copy.copy of the fields that change); the caller's config
stays as it was.
Harm: `.detach().clone()` on an object that is no tensor, or the caller's config changed.
"""

import copy

import torch
from torch import nn


class GenerationConfig:
    def __init__(self, **kwargs):
        self.temperature = kwargs.pop("temperature", 1.0)
        self.repetition_penalty = kwargs.pop("repetition_penalty", 1.0)
        self.suppress = kwargs.pop("suppress", [])

    def update(self, **kwargs):
        for key, value in kwargs.items():
            if hasattr(self, key):
                setattr(self, key, value)


class Generator(nn.Module):
    def __init__(self, vocab=10, size=8):
        super().__init__()
        self.config = GenerationConfig(suppress=[0])
        self.embed = nn.Embedding(vocab, size)
        self.head = nn.Linear(size, vocab)

    def next_token(self, ids, **overrides):
        config = copy.deepcopy(self.config)
        config.update(**overrides)
        logits = self.head(self.embed(ids).mean(1)) / config.temperature
        for token in config.suppress:
            logits[:, token] = float("-inf")
        return logits.argmax(-1, keepdim=True)


torch.manual_seed(0)
generator = Generator()
next_token = torch.compile(generator.next_token, backend="eager")
ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
with torch.no_grad():
    for _ in range(4):
        ids = torch.cat([ids[:, 1:], next_token(ids, temperature=0.7)], dim=1)
result = [ids, generator.config.temperature]
