"""Gradual unfreezing: one more layer is trained each epoch.

Reported: chiahao3/ptyrad#13
Right: Nothing to save: each set of trained layers has its own backward graph. It is said that it
ends when all are unfrozen, or all gradients are computed and masked.
Harm: Layers that stay frozen, or detached inputs.
"""

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, size=6, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(depth))
        self.head = nn.Linear(size, 2)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return self.head(x)


def freeze_all(model):
    model.layers.requires_grad_(False)


def unfreeze(model, count):
    for layer in list(model.layers)[len(model.layers) - count :]:
        layer.requires_grad_(True)


torch.manual_seed(0)
model = Tagger()
compiled = torch.compile(model, backend="aot_eager")
freeze_all(model)
losses = []
for epoch in range(4):
    unfreeze(model, epoch)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for step in range(2):
        x = torch.randn(5, 6, generator=torch.Generator().manual_seed(step))
        loss = nn.functional.cross_entropy(compiled(x), torch.arange(5) % 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
result = [losses, model.layers[0].weight.grad]
