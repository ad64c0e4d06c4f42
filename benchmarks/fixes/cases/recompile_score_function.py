"""Sampling with guidance: the score function is a new lambda at each step.

Reported: pytorch/pytorch#135859 and others, "___check_obj_id of a lambda"
Right: Define the function once and pass what changes in it as a tensor argument.
Harm: Guidance that stays at the weight of the first step.
"""

import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.fc = nn.Linear(size, size)

    def forward(self, x):
        return torch.tanh(self.fc(x))


@torch.compile(backend="eager")
def take_step(model, x, score):
    return x - 0.1 * (model(x) + score(x))


class Sampler:
    def __init__(self, model, target):
        self.model, self.target = model, target

    @torch.no_grad()
    def sample(self, x, weights):
        for weight in weights:
            x = take_step(self.model, x, lambda y, by=weight: by * (y - self.target))
        return x


torch.manual_seed(0)
sampler = Sampler(Denoiser(), torch.ones(6))
weights = [0.0, 0.25, 0.5, 0.75, 1.0]
result = [sampler.sample(torch.zeros(3, 6), weights) for _ in range(2)]
