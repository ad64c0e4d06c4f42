"""Training whose dropout grows with the epochs: a callback sets the probability of each layer.

Reported: facebookresearch/dinov2 and timm users, drop path that is scheduled
Right: One compile for each value of p, which torch takes as a number; not surely avoidable. Else a
mask of one's own from a tensor.
Harm: A dropout that keeps its first p, or that raises because p is a tensor.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.fc = nn.Linear(size, size)
        self.p = 0.0

    def forward(self, x):
        return x + F.dropout(torch.relu(self.fc(x)), p=self.p, training=self.training)


class DropoutSchedule:
    def __init__(self, block, last, epochs):
        self.block, self.last, self.epochs = block, last, epochs

    def start_epoch(self, epoch):
        self.block.p = self.last * epoch / (self.epochs - 1)


torch.manual_seed(0)
block = Block()
schedule = DropoutSchedule(block, last=0.4, epochs=5)
compiled = torch.compile(block, backend="aot_eager")
optimizer = torch.optim.SGD(block.parameters(), lr=0.05)
result = []
for epoch in range(5):
    schedule.start_epoch(epoch)
    for _ in range(2):
        torch.manual_seed(epoch)
        loss = compiled(torch.ones(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    result.append(round(loss.item(), 4))
