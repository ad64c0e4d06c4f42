"""A tensor learning rate that ReduceLROnPlateau replaces by a float.

Reported: pytorch/pytorch#163093
Right: Write the new rate into the tensor (`lr.copy_` or `fill_`), or make it a tensor again after
the scheduler's step.
Harm: A learning rate that is no longer reduced.
"""

import torch
from torch import nn


def train(model, metrics):
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1), foreach=True)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=0, min_lr=0.001
    )

    @torch.compile(backend="eager")
    def optimizer_step():
        optimizer.step()

    rates = []
    for number, metric in enumerate(metrics):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(number))
        model(x).square().mean().backward()
        optimizer_step()
        scheduler.step(metric)
        optimizer.zero_grad()
        rates.append(float(optimizer.param_groups[0]["lr"]))
    return rates


torch.manual_seed(0)
model = nn.Linear(3, 2)
rates = train(model, [1.0, 0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 1.0])
print(rates)
result = [rates, model.weight.detach().clone()]
