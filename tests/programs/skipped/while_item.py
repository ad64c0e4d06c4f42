import torch


@torch.compile
def halve(x):
    while x.sum().item() > 1:  # the block, the break
        x = torch.mul(x, 0.5)
    return torch.cos(x)


def call():
    return halve(torch.ones(8))


for _ in range(3):
    call()
