"""Pipeline stages that pass a growing tuple of residuals through the same compiled layer class.

Reported: tdrussell/diffusion-pipe#439
Right: Pass what the layer needs and carry the residuals beside it, outside the compiled call; each
number of residuals is a graph of its own otherwise.
Harm: Residuals that are dropped or reordered.
"""

import torch
from torch import nn


class DownLayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = nn.Linear(size, size)

    def forward(self, inputs):
        hidden, emb, *residuals = inputs
        hidden = torch.relu(self.fc(hidden) + emb)
        return (hidden, emb, *residuals, hidden)


class UpLayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = nn.Linear(2 * size, size)

    def forward(self, inputs):
        hidden, emb, *residuals, last = inputs
        hidden = torch.relu(self.fc(torch.cat([hidden, last], -1)) + emb)
        return (hidden, emb, *residuals)


class Pipeline:
    def __init__(self, size=6, depth=5):
        self.layers = [DownLayer(size) for _ in range(depth)] + [
            UpLayer(size) for _ in range(depth)
        ]
        for layer in self.layers:
            layer.compile(backend="eager")

    def run(self, x, emb):
        state = (x, emb)
        for layer in self.layers:
            state = layer(state)
        return state[0]


torch.manual_seed(0)
pipeline = Pipeline()
with torch.no_grad():
    result = [pipeline.run(torch.full((2, 6), float(n)), torch.ones(2, 6)) for n in range(2)]
