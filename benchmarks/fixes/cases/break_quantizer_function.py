"""Quantisation-aware training with a straight-through autograd function.

Reported: pytorch/pytorch#160757
Right: Keep the scale a tensor in the function, or compute it in the module and pass it in.
Harm: A scale without its value, or gradients that are no longer straight through.
"""

import torch
from torch import nn


class FakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bits):
        levels = 2 ** (bits - 1) - 1
        scale = x.abs().max().item() / levels
        if scale == 0:
            return x
        ctx.save_for_backward(x.abs() <= levels * scale)
        return torch.round(x / scale) * scale

    @staticmethod
    def backward(ctx, grad):
        (inside,) = ctx.saved_tensors
        return grad * inside, None


class QuantLinear(nn.Linear):
    def __init__(self, inputs, outputs, bits=4):
        super().__init__(inputs, outputs)
        self.bits = bits

    def forward(self, x):
        weight = FakeQuantize.apply(self.weight, self.bits)
        return nn.functional.linear(x, weight, self.bias)


torch.manual_seed(0)
model = nn.Sequential(QuantLinear(6, 8), nn.ReLU(), QuantLinear(8, 2, bits=8))
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(3):
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(step))
    loss = compiled(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, model[0].weight.grad]
