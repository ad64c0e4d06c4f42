"""A model that registers a hook on its hidden state to log the norm of its gradient.

Reported: pytorch/pytorch#91468
Right: Register the hook in the caller on a returned tensor, or log the norms as tensors and read
the numbers after backward; the log keeps its numbers.
Harm: Hooks that no longer run, or a TypeError in them.
"""

import torch
from torch import nn


class Probe:
    def __init__(self):
        self.norms = []

    def __call__(self, grad):
        self.norms.append(round(grad.norm().item(), 4))


class Net(nn.Module):
    def __init__(self, size=6, probe=None):
        super().__init__()
        self.probe = probe
        self.fc1, self.fc2 = nn.Linear(size, size), nn.Linear(size, 1)

    def forward(self, x):
        h = torch.relu(self.fc1(x))
        if self.probe is not None and self.training:
            h.register_hook(self.probe)
        return self.fc2(h)


torch.manual_seed(0)
probe = Probe()
model = Net(probe=probe)
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(step))
    loss = (compiled(x) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("gradient norms:", probe.norms)
result = [probe.norms, model.fc1.weight.grad]
