"""A network with an early exit: later layers run only where the first are not sure.

Reported: pytorch/pytorch#105863
Right: Compile the stages and decide in the caller; computing both sides loses what the exit saves.
Harm: Another class, or the exit is never taken.
"""

import torch
from torch import nn


class Branchy(nn.Module):
    def __init__(self, size=6, classes=3):
        super().__init__()
        self.stem, self.rest = nn.Linear(size, size), nn.Linear(size, size)
        self.exit, self.head = nn.Linear(size, classes), nn.Linear(size, classes)
        self.exits = 0

    def forward(self, x):
        hidden = torch.relu(self.stem(x))
        early = self.exit(hidden)
        if early.softmax(-1).amax(-1).min() > 0.5:
            self.exits += 1
            return early
        return self.head(torch.relu(self.rest(hidden)))


torch.manual_seed(0)
model = Branchy()
compiled = torch.compile(model, backend="eager")
with torch.no_grad():
    result = [compiled(torch.linspace(-1, 1, 12).view(2, 6) * scale) for scale in (0.1, 9.0, 30.0)]
result.append(model.exits)
