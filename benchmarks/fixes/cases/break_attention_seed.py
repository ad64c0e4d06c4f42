"""Reformer's reversible layer: it seeds the generator anew so that backward can repeat the dropout.

Reported: pytorch/pytorch#101154
Right: Seed in the caller, before the compiled layer is called; or leave the seeding to
torch.compiler.disable and accept the break.
Harm: Another dropout mask, or the same one at each call.
"""

import sys

import torch
from torch import nn


class ReversibleAttention(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.dropout = nn.Dropout(0.25)
        self.calls = torch.zeros((), dtype=torch.long)
        self.attention_seed = None

    def _init_attention_seed(self):
        self.attention_seed = int(torch.initial_seed() * 31 % sys.maxsize)
        torch.manual_seed(self.attention_seed)

    def forward(self, x):
        self._init_attention_seed()
        return x + self.dropout(self.linear(x))


class Stack(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(ReversibleAttention() for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


torch.manual_seed(3)
model = Stack()
compiled = torch.compile(model, backend="eager")
outputs = [compiled(torch.ones(2, 8)) for _ in range(3)]
outputs[-1].sum().backward()
result = [[out.detach() for out in outputs], model.blocks[0].linear.weight.grad]
