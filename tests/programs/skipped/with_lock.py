import threading

import torch

lock = threading.Lock()


def locked(x):
    with lock:  # the block, the break
        print(x.shape)
        return torch.sin(x)


@torch.compile
def model(x):
    x = torch.cos(x)
    return torch.tanh(locked(x))


def call():
    return model(torch.ones(4))


for _ in range(3):
    call()
