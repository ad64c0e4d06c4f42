"""Count the depths of 200 that are slow in a backward pass of a thread that autograd starts in C++.

Such threads run the backward pass on GPUs; on a CPU they run one that is nested more than 60 deep.
`pool_backward.py` prints whether it was another thread, and the count of its second backward pass.
"""

import sys
import threading
from pathlib import Path

import torch
import torch._dynamo

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.faults.frame_stack import SLOW_FAULTS, measure_depths

NESTED = 70  # autograd goes on in another thread after 60
counts: list[int] = []
threads: set[int] = set()


class Nested(torch.autograd.Function):
    """Pass a tensor on; its backward runs another backward, and the innermost measures."""

    @staticmethod
    def forward(ctx, x, depth):
        ctx.depth = depth
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.depth:
            with torch.enable_grad():
                Nested.apply(torch.ones(1, requires_grad=True), ctx.depth - 1).sum().backward()
        else:
            counts.append(sum(depth.faults >= SLOW_FAULTS for depth in measure_depths(200, 2)))
            threads.add(threading.get_native_id())
        return gradient, None


class Model(torch.nn.Linear):
    """Take a training step through it, and write each count into the folder of this file."""

    def __init__(self):
        super().__init__(4, 4)

    def forward(self, x):
        if counts:
            Path(__file__).with_suffix(".txt").write_text(f"{counts[-1]}")
        return torch._dynamo.disable(Nested.apply)(super().forward(x), NESTED)

    def get_example_inputs(self):
        return (torch.randn(2, 4),)


if __name__ == "__main__":
    for _ in range(2):
        Nested.apply(torch.ones(1, requires_grad=True), NESTED).sum().backward()
    print(threading.get_native_id() not in threads, counts[-1])
