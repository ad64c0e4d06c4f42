import functools

import torch


def retried(function):
    @functools.wraps(function)
    def wrapper(x):
        for _ in range(2):  # the block
            x = function(x)
        return torch.tanh(x)

    return wrapper


@retried
def attempt(x):
    x = torch.sin(x)
    print(x.shape)  # the break
    return torch.cos(x)


@torch.compile
def model(x):
    x = torch.exp(x)
    return torch.relu(attempt(x))


def call():
    return model(torch.ones(4))


for _ in range(3):
    call()
