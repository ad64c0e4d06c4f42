"""A perceptron that adds noise to its input for about half of the batches.

Reported: pytorch/pytorch#158642
Right: Draw in the caller and pass the choice in, or choose with torch.where.
Harm: Another choice than the seed gives.
"""

import torch
from torch import nn


class Perceptron(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, 1)

    def forward(self, x):
        if torch.rand(1).item() > 0.5:
            x = x + 0.1
        return torch.sigmoid(self.linear(x))


torch.manual_seed(0)
model = Perceptron(4)
compiled = torch.compile(model, backend="aot_eager")
outputs = []
for step in range(5):
    out = compiled(torch.full((3, 4), float(step)))
    out.mean().backward()
    outputs.append(out.detach())
result = [outputs, model.linear.weight.grad]
