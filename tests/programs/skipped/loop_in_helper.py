import torch


def show(x):
    x = torch.sin(x)
    print(x.shape)  # the break
    return torch.cos(x)


def repeat(x):
    for _ in range(3):  # the block
        x = show(x)
    return torch.tanh(x)


@torch.compile
def model(x):
    x = torch.exp(x)
    x = repeat(x)
    return torch.relu(x)


def call():
    return model(torch.ones(4))


for _ in range(3):
    call()
