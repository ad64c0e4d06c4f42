"""A diffusion transformer that stamps its blocks with the wall clock for a request's trace.

Reported: sgl-project/sglang#19894
Right: Take the time in the caller, around the compiled call; inside a graph it would be the time of
tracing.
Harm: Times frozen at compilation, or the trace empty.
"""

from datetime import datetime

import torch
from torch import nn


class Trace:
    def __init__(self):
        self.events = []

    def mark(self, name):
        self.events.append((name, datetime.now()))


class Block(nn.Module):
    def __init__(self, size, number, trace):
        super().__init__()
        self.number, self.trace = number, trace
        self.fc = nn.Linear(size, size)

    def forward(self, x):
        self.trace.mark(f"block{self.number}")
        return x + torch.tanh(self.fc(x))


class Transformer(nn.Module):
    def __init__(self, size=8, depth=3):
        super().__init__()
        self.trace = Trace()
        self.blocks = nn.ModuleList(Block(size, n, self.trace) for n in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        self.trace.mark("end")
        return x


def serve(model, requests):
    outputs = []
    for request in requests:
        with torch.no_grad():
            outputs.append(model(request))
    return outputs


torch.manual_seed(0)
model = Transformer()
outputs = serve(torch.compile(model, backend="eager"), [torch.ones(2, 8) * n for n in range(4)])
names = [name for name, _ in model.trace.events]
moments = [moment for _, moment in model.trace.events]
result = [outputs, names, moments == sorted(set(moments))]
