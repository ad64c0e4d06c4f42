"""An attention that warns when it falls back from the fused kernel, in a nested module.

Reported: meta-pytorch/torchtune#2771
Right: Warn once when the module is built, or in the caller, or guard with
torch.compiler.is_compiling().
Harm: The warning no longer reaches the user although the line is meant to stay.
"""

import math
import warnings

import torch
from torch import nn


def attend(q, k, v, mask=None):
    if mask is not None:
        warnings.warn("a dense mask was passed: the fused attention is not used", stacklevel=2)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


class SelfAttention(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(size, size) for _ in range(3))

    def forward(self, x, mask):
        return attend(self.q(x), self.k(x), self.v(x), mask)


class Transformer(nn.Module):
    def __init__(self, size=8, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(SelfAttention(size) for _ in range(depth))

    def forward(self, x, mask):
        for layer in self.layers:
            x = x + layer(x, mask)
        return x


torch.manual_seed(0)
model = Transformer()
compiled = torch.compile(model, backend="aot_eager")
mask = torch.ones(5, 5, dtype=torch.bool).tril()
out = compiled(torch.ones(2, 5, 8), mask)
out.sum().backward()
result = [out.detach(), model.layers[0].q.weight.grad]
