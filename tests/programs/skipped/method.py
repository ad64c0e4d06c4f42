import logging

import torch

log = logging.getLogger("method")


class Sampler:
    def __init__(self):
        self.steps = 3

    def run(self, x):
        for step in range(self.steps):  # the block
            x = torch.sin(x)
            self.report(step, x)
        return torch.cos(x)

    def report(self, step, x):
        log.warning("step %d", step)  # the break


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sampler = Sampler()

    def forward(self, x):
        x = torch.tanh(x)
        x = self.sampler.run(x)
        return torch.relu(x)


logging.disable(logging.CRITICAL)
net = torch.compile(Net())


def call():
    return net(torch.ones(4))


for _ in range(3):
    call()
