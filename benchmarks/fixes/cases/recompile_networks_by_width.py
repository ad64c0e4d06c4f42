"""A width search: the same compiled training function gets a new network each time.

Reported: pytorch/pytorch#134954
Right: Nothing to save by a setting: each network is another graph. Compile each network once (it is
so), or mark sizes dynamic only where the widths are all that differ.
Harm: Networks of one width.
"""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)


@torch.compile(backend="aot_eager")
def loss_function(network, x, y):
    return (network(x) - y).square().mean()


def fit(network, steps=3):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    for step in range(steps):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))
        loss = loss_function(network, x, x.sum(-1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
scores = {width: fit(Net(width)) for width in (4, 8, 12, 16)}
best = min(scores, key=scores.get)
print("best width", best)
result = [scores, best]
