"""Preference training: the same model with its adapter is the policy, without it the reference.

Reported: pytorch/pytorch#124717
Right: Nothing to fix: with and without the adapter are two graphs, compiled once each.
Harm: A reference that uses the adapter.
"""

from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional as F


class LoRALinear(nn.Module):
    def __init__(self, inputs, outputs, rank=2):
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.a, self.b = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
        self.disabled = False

    def forward(self, x):
        out = self.base(x)
        if self.disabled:
            return out
        return out + self.b(self.a(x))


@contextmanager
def disable_adapter(model):
    layers = [module for module in model.modules() if isinstance(module, LoRALinear)]
    for layer in layers:
        layer.disabled = True
    try:
        yield
    finally:
        for layer in layers:
            layer.disabled = False


torch.manual_seed(0)
model = nn.Sequential(LoRALinear(6, 8), nn.ReLU(), LoRALinear(8, 4))
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
losses = []
for step in range(4):
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(step))
    with torch.no_grad(), disable_adapter(model):
        reference = F.log_softmax(compiled(x), -1)
    policy = F.log_softmax(compiled(x), -1)
    loss = -F.logsigmoid((policy - reference)[:, 0] - (policy - reference)[:, 1]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, model[0].a.weight.grad]
