"""One tower per feature, each compiled on its own and told apart by the key that it keeps.

Reported: pytorch/pytorch#171598
Right: Pass the feature's tensor instead of looking it up by a key of the tower, so that the towers
share a graph; or compile the whole model once.
Harm: A tower that reads another feature.
"""

import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, key, size=4, hidden=6):
        super().__init__()
        self.key = key
        self.fc = nn.Linear(size, hidden)

    def forward(self, features):
        return torch.relu(self.fc(features[self.key]))


class Model(nn.Module):
    def __init__(self, keys):
        super().__init__()
        self.towers = nn.ModuleList(torch.compile(Tower(key), backend="eager") for key in keys)
        self.head = nn.Linear(6 * len(keys), 1)

    def forward(self, features):
        return self.head(torch.cat([tower(features) for tower in self.towers], dim=-1))


keys = ["age", "city", "device", "genre", "hour", "language", "price", "query", "rank", "user"]
torch.manual_seed(0)
model = Model(keys)
result = []
with torch.no_grad():
    for step in range(2):
        generator = torch.Generator().manual_seed(step)
        features = {key: torch.randn(3, 4, generator=generator) for key in keys}
        result.append(model(features))
