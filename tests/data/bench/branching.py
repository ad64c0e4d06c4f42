"""Models that torch.export refuses, each for one reason."""

import torch
from torch import nn


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        y = self.layer(x)
        if y.mean() > 0:
            return y.relu()
        return y - 1

    def get_example_inputs(self):
        return (torch.randn(4, 16),)


@torch.library.custom_op("branching::no_kernel", mutates_args=())
def no_kernel(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


class HasNoKernel(Branches):
    def forward(self, x):
        return self.layer(no_kernel(x))
