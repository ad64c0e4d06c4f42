import warnings

import torch


def scale(x, factor):
    return x * factor


@torch.compile
def forward(x):
    return scale(torch.sin(x), 3).sum()


result = []
for _ in range(2):
    warnings.warn("the factor is large", stacklevel=2)
    result.append(forward(torch.ones(4)))
