"""A decoder with LayerDrop, as in MBart: a random number decides whether a layer is skipped.

Reported: pytorch/pytorch#95425
Right: Draw which layers are kept outside the compiled function and pass them in, or multiply by a
drawn 0 or 1.
Harm: torch.where on a Python bool, which raises, or other layers dropped than before.
"""

import random

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.fc = nn.Linear(size, size)

    def forward(self, x):
        return x + torch.relu(self.fc(self.norm(x)))


class Decoder(nn.Module):
    def __init__(self, size=8, depth=4, layerdrop=0.3):
        super().__init__()
        self.layers = nn.ModuleList(Layer(size) for _ in range(depth))
        self.layerdrop = layerdrop
        self.out = nn.Linear(size, 2)

    def forward(self, x):
        for layer in self.layers:
            dropout_probability = random.uniform(0, 1)
            if self.training and dropout_probability < self.layerdrop:
                continue
            x = layer(x)
        return self.out(x)


torch.manual_seed(0)
random.seed(7)
model = Decoder()
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []
for step in range(5):
    loss = compiled(torch.full((4, 8), 0.1 * step)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
result = [losses, model.out.weight.grad]
