import torch


@torch.compile
def scale(x):
    for step in range(3):  # the block
        x = torch.sin(x)
        print("step", step)  # the break
    return torch.cos(x)


def call():
    return scale(torch.ones(4))


for _ in range(3):
    call()
