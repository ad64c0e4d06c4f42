import contextlib
import time

import torch


@contextlib.contextmanager
def timer(times):
    start = time.perf_counter()  # the break
    yield
    times.append(time.perf_counter() - start)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.times = []

    def forward(self, x):
        with timer(self.times):
            return torch.sin(x)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:  # the block
            x = torch.exp(block(x))
        return torch.relu(x)


net = torch.compile(Net())


def call():
    return net(torch.ones(4))


for _ in range(3):
    call()
