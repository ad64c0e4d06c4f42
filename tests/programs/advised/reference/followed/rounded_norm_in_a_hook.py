import torch

norms = []


def log_norm(gradient):
    return gradient * 1.0, gradient.norm()


@torch.compile
def apply(x, hook):
    y = x.sin()
    y, norm = hook(y)
    return y * 2, norm


result = []
for _ in range(2):
    y, norm = apply(torch.ones(4), log_norm)
    norms.append(round(norm.item(), 4))
    result.append(y)
result.append([type(norm).__name__ for norm in norms])
