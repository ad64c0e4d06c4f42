"""A loss that is bound anew for each step with functools.partial.

Reported: pytorch/pytorch#168163
Right: Pass the weight as a tensor argument; the partial's keyword is a float that changes.
Harm: A loss with the first weight.
"""

import functools

import torch
from torch import nn
from torch.nn import functional as F


def weighted_loss(logits, targets, *, smoothing, weight):
    loss = F.cross_entropy(logits, targets, label_smoothing=smoothing)
    return weight * loss + (1 - weight) * logits.square().mean()


@torch.compile(backend="aot_eager")
def forward_loss(model, x, y, loss_fn):
    return loss_fn(model(x), y)


def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        weight = 0.5 + 0.05 * step
        loss_fn = functools.partial(weighted_loss, smoothing=0.1, weight=weight)
        x = torch.randn(6, 5, generator=torch.Generator().manual_seed(step))
        loss = forward_loss(model, x, torch.arange(6) % 3, loss_fn)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
losses = train(model, 6)
result = [losses, model[0].weight.grad]
