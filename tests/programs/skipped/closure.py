import time

import torch


def make(count):
    def timed(x):
        for _ in range(count):  # the block
            time.perf_counter()  # the break
            x = torch.sin(x)
        return torch.cos(x)

    return timed


timed = make(3)


@torch.compile
def model(x):
    x = torch.tanh(x)
    return torch.relu(timed(x))


def call():
    return model(torch.ones(4))


for _ in range(3):
    call()
