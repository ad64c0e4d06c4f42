"""An encoder whose blocks hand their hidden states to whoever is collecting, found by a ContextVar.

Reported: pytorch/pytorch#186449
Right: Read the ContextVar in the caller and pass the list (or a flag) in, or return the states.
Harm: States that are no longer collected, or that are collected when nobody asked for them.
"""

import contextlib
from contextvars import ContextVar

import torch
from torch import nn

_active_collector = ContextVar("active_collector", default=None)


@contextlib.contextmanager
def collect_states():
    states = []
    token = _active_collector.set(states)
    try:
        yield states
    finally:
        _active_collector.reset(token)


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(size), nn.Linear(size, size)

    def forward(self, x):
        x = x + torch.tanh(self.linear(self.norm(x)))
        collector = _active_collector.get()
        if collector is not None:
            collector.append(x)
        return x


class Encoder(nn.Module):
    def __init__(self, size=8, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block(size) for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.mean(1)


torch.manual_seed(0)
encoder = torch.compile(Encoder(), backend="eager")
x = torch.randn(2, 5, 8)
with torch.no_grad():
    plain = encoder(x)
    with collect_states() as states:
        collected = encoder(x * 0.5)
    with collect_states() as more_states:
        encoder(x * 2)
    after = encoder(x + 1)
result = [plain, collected, states, more_states, after]
print([round(t.sum().item(), 4) for t in (plain, collected, *states, *more_states, after)])
print(len(states), len(more_states))
