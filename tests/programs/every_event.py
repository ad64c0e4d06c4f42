"""Make torch write as many kinds of trace records as it does on a CPU: with TORCH_DTRACE, those of
export as well.
"""

from contextlib import suppress

import torch
import torch._dynamo.config
from torch.export import Dim, draft_export, export


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, k=1):
        y = self.linear(x) * k + x.shape[0]
        torch._dynamo.graph_break(msg="here")
        return y.cos()


class Exported(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.shape[0] > 3 else x


class Drafted(torch.nn.Module):
    def forward(self, x, y):
        n = x.item()
        z = torch.ops.every_event.no_fake(y)
        return z + 1 if n > 4 else z[:n]


@torch.library.custom_op("every_event::no_fake", mutates_args=())
def no_fake(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


SEEN = []


def mutate(x, y):
    y.add_(x.sum(dim=0))
    SEEN.append(y * 2)
    return x.t(), y[:2], torch.rand(3)


def item(x):
    n = x.item()
    torch._check(n >= 0)
    torch._check(n < 10)
    return torch.zeros(n + 2)


def broken(graph, inputs):
    raise RuntimeError("no such backend")


def backward(x):
    (x * x).sum().backward()
    return x.grad


def compiles():
    block = torch.compile(Block())
    for size in (3, 5):
        block(torch.randn(size, 4)).sum().backward()
    block(torch.randn(7, 4), 2)
    torch.compile(mutate)(torch.randn(3, 4), torch.randn(4))
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        torch.compile(item, fullgraph=True)(torch.tensor(5))
    with suppress(Exception):
        torch.compile(lambda x: x * 2, backend=broken)(torch.ones(3))
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(backward)(torch.randn(4, requires_grad=True))


def exports():
    sizes = {"x": {0: Dim("size", min=4)}}
    for strict in (False, True):
        export(Exported(), (torch.randn(5, 3),), dynamic_shapes=sizes, strict=strict)
    draft_export(Drafted(), (torch.tensor(5), torch.randn(9)))


if __name__ == "__main__":
    compiles()
    exports()
