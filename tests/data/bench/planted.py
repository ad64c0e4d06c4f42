"""Models that each go wrong in one way, and one that goes right: what `bench` must live with."""

import gc
import os
import sys
import time

import torch
from torch import nn

import compileboard


class Fine(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        return self.layer(x).relu()

    def get_example_inputs(self):
        return (torch.randn(4, 16),)


class Breaks(Fine):
    def forward(self, x):
        y = self.layer(x)
        print("a graph break", y.shape)
        return y.relu()


class WrongAnswer(Fine):
    def forward(self, x):
        y = super().forward(x)
        return y + 1.0 if torch.compiler.is_dynamo_compiling() else y


class Unsteady(Fine):
    def forward(self, x):
        return super().forward(x) + float(int.from_bytes(os.urandom(4), "big"))


class EagerFails(Fine):
    def forward(self, x):
        raise RuntimeError("the model's own <b>mistake</b>")


class SaysOddBytes(Fine):
    def forward(self, x):
        raise RuntimeError("a byte that is no character: \udce9")


class Leaves(Fine):
    def forward(self, x):
        sys.exit("the model's own way out")


class LeavesWhenBuilt(Fine):
    def __init__(self):
        raise KeyboardInterrupt


class RunsOutOfMemory(Fine):
    def forward(self, x):
        return torch.empty(1 << 50).sum() + x


class Crashes(Fine):
    def forward(self, x):
        print("about to crash", flush=True)
        os.abort()


class Hangs(Fine):
    def forward(self, x):
        time.sleep(600)


class NeedsCollections(Fine):
    def forward(self, x):
        if gc.get_freeze_count():
            raise RuntimeError("collections do not search the imports")
        return super().forward(x)


class CannotBeBuilt(Fine):
    def __init__(self):
        raise ValueError("no such configuration")


class NeedsALibrary(Fine):
    def __init__(self):
        import a_library_that_is_not_there  # noqa: F401


@compileboard.bench.model(name="Marked", batch_size=6)
def marked(batch_size):
    return nn.Linear(8, 8), (torch.randn(batch_size, 8),)


def _make(net):
    def make(batch_size):
        return net(), (torch.randn(batch_size, 16),)

    return compileboard.bench.model(name=net.__name__, batch_size=4)(make)


fine, breaks, wrong, unsteady = map(_make, (Fine, Breaks, WrongAnswer, Unsteady))
eager_fails, memory, crashes, hangs = map(_make, (EagerFails, RunsOutOfMemory, Crashes, Hangs))
cannot_be_built, needs_a_library, odd_bytes = map(
    _make, (CannotBeBuilt, NeedsALibrary, SaysOddBytes)
)
leaves, leaves_when_built, needs_collections = map(
    _make, (Leaves, LeavesWhenBuilt, NeedsCollections)
)
