import torch


def part(x, scale):
    x = torch.mul(x, scale)
    print(x.shape)  # the break
    return torch.sin(x)


@torch.compile
def model(x):
    x = torch.cos(x)
    parts = [part(x, scale) for scale in range(3)]
    return torch.stack(parts)


def call():
    return model(torch.ones(4))


for _ in range(3):
    call()
