"""A recommender with an encoder for each feature, each compiled on its own.

Reported: pytorch/pytorch#171593
Right: Each encoder looks its own key up: hand it its tensor, or compile what calls all of them.
Harm: An encoder that gets another feature.
"""

import torch
from torch import nn


class FeatureEncoder(nn.Module):
    def __init__(self, key, count, size):
        super().__init__()
        self.key = key
        self.table = nn.Embedding(count, size)

    def forward(self, features):
        return torch.tanh(self.table(features[self.key]))


class Recommender(nn.Module):
    def __init__(self, keys, count=12, size=6):
        super().__init__()
        self.encoders = nn.ModuleList(FeatureEncoder(key, count, size) for key in keys)
        self.head = nn.Linear(len(keys) * size, 1)
        for encoder in self.encoders:
            encoder.compile(backend="eager")

    def forward(self, features):
        encoded = [encoder(features) for encoder in self.encoders]
        return self.head(torch.cat(encoded, -1)).squeeze(-1)


torch.manual_seed(0)
keys = ("user", "item", "shop", "city", "hour")
model = Recommender(keys).eval()
result = []
with torch.no_grad():
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        features = {key: torch.randint(0, 12, (4,), generator=generator) for key in keys}
        result.append(model(features))
