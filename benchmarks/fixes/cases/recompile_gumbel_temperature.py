"""A discrete autoencoder whose Gumbel temperature is annealed each step.

Reported: pytorch/pytorch forum, "recompiles because of an annealed float"
Right: Pass the temperature as a tensor: it is only divided by.
Harm: A temperature that stays at its first value.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


class DiscreteAutoencoder(nn.Module):
    def __init__(self, size=6, codes=5):
        super().__init__()
        self.encode = nn.Linear(size, codes)
        self.codebook = nn.Embedding(codes, size)

    def forward(self, x, tau):
        soft = F.gumbel_softmax(self.encode(x), tau=tau, dim=-1)
        return soft @ self.codebook.weight


def anneal(step, start=1.0, rate=0.1, least=0.5):
    return max(start * math.exp(-rate * step), least)


torch.manual_seed(0)
model = DiscreteAutoencoder()
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
result = []
for step in range(9):
    torch.manual_seed(step)
    x = torch.randn(4, 6)
    loss = F.mse_loss(compiled(x, anneal(step)), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(round(loss.item(), 4))
