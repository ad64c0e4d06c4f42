# advised first: item_captured, item_captured
import numpy as np
import torch


@torch.compile
def clip(x):
    lo = float(np.quantile(x.numpy(), 0.05).item())
    hi = float(np.quantile(x.numpy(), 0.95).item())
    return x.clamp(lo, hi) * 2


result = clip(torch.arange(40.0))
