# advised first: random_in_caller
import random

import torch


@torch.compile
def augment(image, p):
    y = image * 2
    if random.uniform(0, 1) < p:
        y = y.flip(-1)
    return y + 1


random.seed(0)
result = [augment(torch.arange(6.0).view(2, 3), 1.0) for _ in range(3)]
