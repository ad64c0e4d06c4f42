# advised first: item_captured
import torch

norms = []


def log_norm(gradient):
    norms.append(round(gradient.norm().item(), 4))
    return gradient * 1.0


@torch.compile
def apply(x, hook):
    y = x.sin()
    return hook(y) * 2


result = [apply(torch.ones(4), log_norm) for _ in range(2)]
result.append([type(norm).__name__ for norm in norms])
