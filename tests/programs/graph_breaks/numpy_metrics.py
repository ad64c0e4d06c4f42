"""A loss with metrics that are computed by numpy."""

import numpy as np
import torch


@torch.compile
def evaluate(scores, labels):
    probabilities = scores.sigmoid()
    curve = np.interp(probabilities.detach().numpy(), [0.0, 1.0], [0.0, 100.0])
    loss = ((probabilities - labels) ** 2).mean()
    mean = float(probabilities.detach().numpy().mean())
    noise = np.random.normal() * 0
    return loss, mean + noise, torch.as_tensor(curve)


torch.manual_seed(0)
result = evaluate(torch.randn(8), torch.ones(8))
