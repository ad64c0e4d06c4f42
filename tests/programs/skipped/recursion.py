import torch


def descend(x, depth):
    x = torch.sin(x)
    if depth:
        for _ in range(2):  # the block
            x = descend(x, depth - 1)
    else:
        print(x.shape)  # the break
    return torch.cos(x)


@torch.compile
def model(x):
    return torch.relu(descend(torch.tanh(x), 2))


def call():
    return model(torch.ones(4))


for _ in range(3):
    call()
