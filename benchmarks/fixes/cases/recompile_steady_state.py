"""A rolling cache of a video model that fills up and then shifts.

Reported: NVIDIA/flashdreams#257
Right: Compute the bounds of the write without a branch, or accept the few compiles of the filling;
two variants, filling and steady, are right.
Harm: Chunks that are written to the wrong place.
"""

import torch
from torch import nn


class BlockCache:
    def __init__(self, total, chunk, size):
        self.data = torch.zeros(1, total, size)
        self.total, self.chunk, self.count = total, chunk, 0

    def is_steady_state(self):
        return self.count >= self.total

    def update(self, x):
        if self.is_steady_state():
            self.data = torch.cat([self.data[:, self.chunk :], x], dim=1)
        else:
            self.data[:, self.count : self.count + self.chunk] = x
            self.count += self.chunk
        return self.data


class Model(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.inp, self.out = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, x, cache):
        past = cache.update(self.inp(x))
        weights = (x @ past.transpose(1, 2)).softmax(-1)
        return self.out(weights @ past)


torch.manual_seed(0)
model = torch.compile(Model(), backend="eager", dynamic=False)
cache = BlockCache(total=12, chunk=2, size=6)
result = []
with torch.no_grad():
    for step in range(10):
        x = torch.randn(1, 2, 6, generator=torch.Generator().manual_seed(step))
        result.append(model(x, cache))
