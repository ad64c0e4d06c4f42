"""A denoiser that looks up its schedule by the number of the timestep tensor.

Reported: mit-han-lab/distrifuser#26
Right: Index a tensor of the schedule with the timestep, or read the number in the caller.
Harm: Another sigma.
"""

import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, size=6, steps=4):
        super().__init__()
        self.sigmas = {step * 10: 1.0 / (step + 1) for step in range(steps)}
        self.net = nn.Sequential(nn.Linear(size, 12), nn.SiLU(), nn.Linear(12, size))

    def forward(self, sample, timestep):
        sigma = self.sigmas[timestep.item()]
        return sample - sigma * self.net(sample / (1 + sigma))


torch.manual_seed(0)
model = torch.compile(Denoiser(), backend="eager")
sample = torch.ones(2, 6)
with torch.no_grad():
    for timestep in torch.tensor([30, 20, 10, 0]):
        sample = model(sample, timestep)
result = sample
