"""A loss that is annealed by a global step counter.

Reported: pytorch/pytorch#127483
Right: Pass the step (or the annealed weight) as a tensor argument.
Harm: Annealing that stops.
"""

import torch
from torch import nn
from torch.nn import functional as F

GLOBAL_STEP = 0
ANNEAL_STEPS = 20


def anneal():
    return max(0.0, 1.0 - GLOBAL_STEP / ANNEAL_STEPS)


class Gate(nn.Module):
    def __init__(self, size=6, experts=3):
        super().__init__()
        self.router = nn.Linear(size, experts)
        self.experts = nn.ModuleList(nn.Linear(size, 2) for _ in range(experts))

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        out = sum(weights[:, n : n + 1] * expert(x) for n, expert in enumerate(self.experts))
        balance = weights.mean(0).square().sum()
        return out, balance


@torch.compile(backend="aot_eager")
def compute_loss(model, x, y):
    out, balance = model(x)
    return F.mse_loss(out, y) + anneal() * balance


torch.manual_seed(0)
model = Gate()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for GLOBAL_STEP in range(6):
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(GLOBAL_STEP))
    loss = compute_loss(model, x, torch.ones(4, 2))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, model.router.weight.grad]
