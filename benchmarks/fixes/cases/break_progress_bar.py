"""A sampler that draws a progress bar of its own while it denoises.

Reported: pytorch/torchdynamo#943
Right: Compile the denoiser's step and keep the loop with the bar in the caller.
Harm: A bar that is drawn once at tracing, or not at all.
"""

import sys

import torch
from torch import nn


class Bar:
    def __init__(self, total, width=10):
        self.total, self.width, self.count = total, width, 0

    def update(self):
        self.count += 1
        done = self.width * self.count // self.total
        sys.stdout.write(f"[{'#' * done}{'.' * (self.width - done)}] {self.count}/{self.total}\n")
        sys.stdout.flush()


class Sampler(nn.Module):
    def __init__(self, size=4, steps=5):
        super().__init__()
        self.steps = steps
        self.net = nn.Sequential(nn.Linear(size, 12), nn.GELU(), nn.Linear(12, size))

    def forward(self, x):
        bar = Bar(self.steps)
        for step in range(self.steps):
            x = x - self.net(x) / (step + 1)
            bar.update()
        return x


torch.manual_seed(0)
sampler = torch.compile(Sampler(), backend="eager")
result = []
with torch.no_grad():
    for seed in range(2):
        result.append(sampler(torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))))
