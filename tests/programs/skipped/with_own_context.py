import contextlib

import torch


@contextlib.contextmanager
def scaled(x):
    yield torch.mul(x, 2)


@torch.compile
def model(x):
    x = torch.sin(x)
    with scaled(x) as y:  # the block
        y = torch.cos(y)
        print(y.shape)  # the break
        y = torch.tanh(y)
    return torch.relu(y)


def call():
    return model(torch.ones(4))


for _ in range(3):
    call()
