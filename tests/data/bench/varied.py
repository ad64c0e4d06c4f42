"""Models that the experiments tell apart: by size, by mode, by what of them is captured, by what
they may take.
"""

import torch
from torch import nn

import compileboard
from compileboard.collectors.bench.loaded import Loaded


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x).relu()


class HalfCaptured(Layer):
    def forward(self, x):
        return self.outside(super().forward(x)).sin()

    @torch._dynamo.disable
    def outside(self, x):
        return x.cos() + x.tan()


class ByMode(Layer):
    def forward(self, x):
        return super().forward(x) * 2 if self.training else super().forward(x)


class NotANumberCompiled(Layer):
    def forward(self, x):
        return super().forward(x) / (0.0 if torch.compiler.is_dynamo_compiling() else 1.0)


class SmallOnly(Layer):
    def forward(self, x):
        if x.shape[0] > 100:
            raise RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate"
            )
        return super().forward(x)


class NothingLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.PReLU()

    def forward(self, x):
        return self.layer(x)


class Untranslated(Layer):
    def forward(self, x):
        return super().forward(x).argsort(dim=-1, stable=True)


class FixedInputs(Layer):
    def get_example_inputs(self):
        return (torch.randn(3, 8),)


@compileboard.bench.model(batch_size=4)
def sized(batch_size):
    return Loaded(
        Layer(),
        (torch.randn(batch_size, 8),),
        resize=lambda rows: (torch.randn(rows, 8),),
        size_name="rows",
        sizes=(4, 6, 10),
    )


@compileboard.bench.model
def unbatched(batch_size):
    return Loaded(Layer(), (torch.randn(5, 8),), batch_size=7)


@compileboard.bench.model
def hungry(batch_size):
    if batch_size > 10:
        raise RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate"
        )
    return Layer(), (torch.randn(batch_size, 8),)


def _make(net):
    def make(batch_size):
        return net(), (torch.randn(batch_size, 8),)

    return compileboard.bench.model(name=net.__name__, batch_size=4)(make)


half, by_mode, not_a_number, small, not_linear, untranslated = map(
    _make, (HalfCaptured, ByMode, NotANumberCompiled, SmallOnly, NothingLinear, Untranslated)
)
