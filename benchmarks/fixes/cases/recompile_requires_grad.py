"""A preprocessing step under no_grad that gets frozen and trainable tensors alike.

Reported: pytorch/pytorch#131975
Right: Detach the input in the caller (the step is under no_grad, nothing is lost).
Harm: A detach inside a path that is trained.
"""

import torch
from torch import nn


@torch.compile(backend="eager")
def weight_statistics(weight, scale):
    absolute = weight.abs() * scale
    return absolute.mean(), absolute.amax(), (absolute > 0.2).float().mean()


class Monitor:
    def __init__(self, model):
        self.model = model
        self.rows = []

    @torch.no_grad()
    def collect(self):
        for name, p in self.model.named_parameters():
            if p.dim() == 2:
                self.rows.append((name, *weight_statistics(p, 2.0)))


torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(4)))
for number, layer in enumerate(model):
    layer.requires_grad_(number % 2 == 0)
monitor = Monitor(model)
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
for step in range(2):
    model(torch.ones(2, 6)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    monitor.collect()
result = monitor.rows
