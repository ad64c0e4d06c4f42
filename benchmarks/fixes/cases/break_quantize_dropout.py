"""Residual vector quantisation with quantise dropout from a seeded random.Random.

Reported: pytorch/pytorch#121349
Right: Draw the dropout index in the caller and pass it in.
Harm: Another index than the seed gives, so that ranks disagree.
"""

import random

import torch
from torch import nn


class Codebook(nn.Module):
    def __init__(self, size, entries):
        super().__init__()
        self.embed = nn.Parameter(torch.randn(entries, size))

    def forward(self, x):
        index = torch.cdist(x, self.embed).argmin(-1)
        quantized = self.embed[index]
        return x + (quantized - x).detach(), index


class ResidualVQ(nn.Module):
    def __init__(self, size=4, entries=8, num_quantizers=4):
        super().__init__()
        self.layers = nn.ModuleList(Codebook(size, entries) for _ in range(num_quantizers))

    def forward(self, x, seed):
        rand = random.Random(seed)
        drop_from = rand.randrange(1, len(self.layers))
        residual, out, indices = x, torch.zeros_like(x), []
        for number, layer in enumerate(self.layers):
            if self.training and number > drop_from:
                indices.append(torch.full(x.shape[:-1], -1))
                continue
            quantized, index = layer(residual)
            residual = residual - quantized.detach()
            out = out + quantized
            indices.append(index)
        return out, torch.stack(indices, -1)


torch.manual_seed(0)
model = ResidualVQ()
compiled = torch.compile(model, backend="eager")
result = []
for step in range(4):
    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(step))
    out, indices = compiled(x, step)
    result.append((out.detach(), indices))
