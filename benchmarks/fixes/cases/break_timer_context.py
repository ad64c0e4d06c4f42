"""A pipeline that times its stages with a context manager of its own.

Reported: pytorch/pytorch#133483
Right: Time around the compiled calls, in the caller; inside a graph there is no stage to time.
Harm: Times of tracing, or stages that are missing from the report.
"""

import time
from contextlib import contextmanager

import torch
from torch import nn

TIMES = {}


@contextmanager
def timed(stage):
    start = time.perf_counter()
    try:
        yield
    finally:
        TIMES.setdefault(stage, []).append(time.perf_counter() - start)


class Pipeline(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(size, size), nn.ReLU())
        self.decoder = nn.Linear(size, 2)

    def forward(self, x):
        with timed("encoder"):
            h = self.encoder(x)
        with timed("decoder"):
            return self.decoder(h)


torch.manual_seed(0)
pipeline = torch.compile(Pipeline(), backend="eager")
outputs = []
with torch.no_grad():
    for number in range(3):
        outputs.append(pipeline(torch.full((2, 8), float(number))))
for stage, times in TIMES.items():
    print(stage, len(times), "times, each above 0:", all(t > 0 for t in times))
result = [outputs, {stage: len(times) for stage, times in TIMES.items()}]
