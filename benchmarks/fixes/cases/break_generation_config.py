"""Generation that copies its configuration so that the arguments of a call do not change it.

Reported: pytorch/pytorch#115122
Right: Copy the configuration in the caller and pass the copy in.
Harm: The caller's configuration is changed.
"""

import copy

import torch
from torch import nn


class Config:
    def __init__(self):
        self.temperature, self.top_k = 1.0, 5
        self.banned = [0]


class Generator(nn.Module):
    def __init__(self, vocab=11):
        super().__init__()
        self.config = Config()
        self.embed = nn.Embedding(vocab, 8)
        self.head = nn.Linear(8, vocab)

    def forward(self, ids, temperature):
        config = copy.deepcopy(self.config)
        config.temperature = temperature
        config.banned.append(1)
        logits = self.head(self.embed(ids).mean(1)) / config.temperature
        logits[:, config.banned] = float("-inf")
        return logits.topk(config.top_k).indices


torch.manual_seed(0)
model = Generator()
compiled = torch.compile(model, backend="eager")
with torch.no_grad():
    result = [compiled(torch.arange(6).view(2, 3) + step, 0.5) for step in range(3)]
result += [model.config.banned, model.config.temperature]
