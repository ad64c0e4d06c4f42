import torch


def norm(x, power):
    value = torch.pow(x, power).sum()
    return value.item()  # the break


@torch.compile
def model(x):
    x = torch.sin(x)
    total = sum(norm(x, power) for power in range(1, 4))  # the block
    return torch.mul(x, total)


def call():
    return model(torch.ones(4))


for _ in range(3):
    call()
