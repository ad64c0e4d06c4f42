"""A point network that normalises only the valid points and writes them back.

Reported: pytorch/pytorch#194166
Right: Capture dynamic output shapes (where the backend takes it), or keep the masked step out of
the compiled function; statistics over all points are another result.
Harm: Statistics over padded points, or running means that differ.
"""

import torch
from torch import nn


class MaskedBatchNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.BatchNorm1d(size)

    def forward(self, h, mask):
        out = h.clone()
        out[mask] = self.norm(h[mask])
        return out


class PointNet(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.fc1 = nn.Linear(3, size)
        self.norm1 = MaskedBatchNorm(size)
        self.fc2 = nn.Linear(size, size)

    def forward(self, points, mask):
        h = torch.relu(self.norm1(self.fc1(points), mask))
        h = self.fc2(h).masked_fill(~mask.unsqueeze(-1), float("-inf"))
        return h.amax(1)


torch.manual_seed(0)
model = PointNet()
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
outputs = []
for valid in (5, 3, 6):
    points = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(valid))
    mask = torch.arange(6).expand(2, 6) < valid
    out = compiled(points, mask)
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    outputs.append(out.detach())
result = [outputs, model.norm1.norm.running_mean, model.fc1.weight.grad]
