# advised first: warning_in_caller
import warnings

import torch


def scale(x, factor):
    if factor > 2:
        warnings.warn("the factor is large", stacklevel=2)
    return x * factor


@torch.compile
def forward(x):
    return scale(torch.sin(x), 3).sum()


result = [forward(torch.ones(4)) for _ in range(2)]
