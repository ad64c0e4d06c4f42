"""A policy of reinforcement learning that projects its action back where it leaves the bounds.

Reported: pytorch/pytorch#140394
Right: Project without asking (clamp), or check in the caller.
Harm: Actions out of bounds, or others changed.
"""

import torch
from torch import nn


class Bounded:
    def __init__(self, low, high):
        self.low, self.high = torch.tensor(low), torch.tensor(high)

    def is_in(self, value):
        return (value >= self.low).all() and (value <= self.high).all()

    def project(self, value):
        return value.clamp(self.low, self.high)


class SafeActor(nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.spec = spec
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, observation):
        action = self.net(observation)
        if not self.spec.is_in(action):
            action = self.spec.project(action)
        return action


torch.manual_seed(0)
actor = torch.compile(SafeActor(Bounded([-0.5, -0.5], [0.5, 0.5])), backend="eager")
with torch.no_grad():
    result = [actor(torch.full((3, 4), scale)) for scale in (0.1, 1.0, 9.0, 0.2)]
