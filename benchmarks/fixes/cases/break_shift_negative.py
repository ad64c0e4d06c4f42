"""A block that shifts its activations where their sum is negative.

Reported: pytorch/torchdynamo#1883
Right: torch.where over the activations.
Harm: A shift where there was none.
"""

import torch
from torch import nn


class Shift(nn.Module):
    def __init__(self, size=5):
        super().__init__()
        self.fc = nn.Linear(size, size)

    def forward(self, a, b):
        x = self.fc(a) + 0.33
        y = x.sum()
        if y < 0:
            x = x + 0.55
        return x + b


torch.manual_seed(0)
model = Shift()
compiled = torch.compile(model, backend="aot_eager")
outputs = []
for step in (-2.0, 1.0, -3.0):
    out = compiled(torch.full((2, 5), step), torch.ones(5))
    out.square().mean().backward()
    outputs.append(out.detach())
result = [outputs, model.fc.weight.grad]
