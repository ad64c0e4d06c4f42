"""Muon's orthogonalisation, compiled once and called with the matrix of each layer.

Reported: microsoft/dion#23
Right: Mark both dimensions of the matrix dynamic (or compile with dynamic=True); or group matrices
by shape.
Harm: Matrices that are padded, which changes the result.
"""

import torch
from torch import nn


@torch.compile(backend="eager", dynamic=False)
def newton_schulz(update, steps: int = 3, eps: float = 1e-7):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = update / (update.norm() + eps)
    transposed = x.shape[0] > x.shape[1]
    if transposed:
        x = x.T
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x.T if transposed else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.9):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                buffer = state.setdefault("momentum", torch.zeros_like(p))
                buffer.mul_(group["momentum"]).add_(p.grad)
                p.add_(newton_schulz(buffer), alpha=-group["lr"])


torch.manual_seed(0)
sizes = [4, 12, 10, 8, 6, 9, 7, 5, 3, 2]
layers = [nn.Linear(a, b, bias=False) for a, b in zip(sizes, sizes[1:])]
model = nn.Sequential(*layers)
optimizer = Muon(model.parameters())
for step in range(2):
    optimizer.zero_grad()
    model(torch.ones(3, 4) * (step + 1)).square().mean().backward()
    optimizer.step()
result = [p.detach().clone() for p in model.parameters()]
