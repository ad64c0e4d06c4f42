"""A linear layer that caches its dequantised weight by the address of the packed one.

Reported: vipshop/cache-dit#76
Right: Dequantise once when the layer is built or loaded, or key the cache by the layer; or leave
the lookup to torch.compiler.disable.
Harm: A stale weight, or the whole layer eager.
"""

import torch
from torch import nn

_DEQUANTISED = {}


def dequantise(packed, scale):
    key = (packed.data_ptr(), packed.shape)
    if key not in _DEQUANTISED:
        _DEQUANTISED[key] = packed.float() * scale
    return _DEQUANTISED[key]


class PackedLinear(nn.Module):
    def __init__(self, inputs, outputs, generator):
        super().__init__()
        weight = torch.randn(outputs, inputs, generator=generator)
        scale = weight.abs().amax() / 127
        self.register_buffer("packed", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return nn.functional.linear(x, dequantise(self.packed, self.scale), self.bias)


class Model(nn.Module):
    def __init__(self, generator):
        super().__init__()
        self.fc1, self.fc2 = PackedLinear(6, 8, generator), PackedLinear(8, 3, generator)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


model = torch.compile(Model(torch.Generator().manual_seed(0)), backend="eager")
with torch.no_grad():
    result = [model(torch.full((2, 6), float(n))) for n in range(3)]
