"""A vision transformer that makes its position embedding when it first sees an input.

Reported: pytorch/pytorch#157452
Right: Make the parameter in __init__ (or call the model once before compiling it).
Harm: A parameter that the optimizer does not have, or another initialisation.
"""

import torch
from torch import nn


class Patches(nn.Module):
    def __init__(self, channels=3, size=8, patch=4):
        super().__init__()
        self.conv = nn.Conv2d(channels, size, patch, patch)
        self.positions = None

    def forward(self, images):
        x = self.conv(images).flatten(2).transpose(1, 2)
        if self.positions is None:
            self.positions = nn.Parameter(torch.zeros(1, x.shape[1], x.shape[2]) + 0.02)
        return x + self.positions


class ViT(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.patches = Patches(size=size)
        self.encoder = nn.TransformerEncoderLayer(size, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(size, 2)

    def forward(self, images):
        return self.head(self.encoder(self.patches(images)).mean(1))


torch.manual_seed(0)
model = ViT()
compiled = torch.compile(model, backend="aot_eager")
outputs = []
for step in range(3):
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(step))
    out = compiled(images)
    out.square().mean().backward()
    outputs.append(out.detach())
result = [outputs, model.patches.conv.weight.grad, model.patches.positions.grad]
