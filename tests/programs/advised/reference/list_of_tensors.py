# advised first: list-that-is-looped
import torch


@torch.compile
def pool(parts):
    total = torch.zeros(4)
    for part in parts:
        total = total + part * 2
    return total


result = [pool([torch.ones(4) * k for k in range(n)]) for n in (2, 3, 4, 5)]
