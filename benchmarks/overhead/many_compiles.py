"""Compile many small functions with the eager backend.

    python -m benchmarks.overhead.many_compiles [COUNT]

Of each ten compiles two come from a graph break (the part before it and the part after it) and two
from a second call that recompiles.
"""

from __future__ import annotations

import sys

import torch
import torch._dynamo
from torch import nn


class Block(nn.Module):
    """A residual MLP block, the usual compile."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the block."""
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Breaking(Block):
    """The same with a graph break in the middle."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the block, printing nothing."""
        y = self.up(self.norm(x))
        print(end="")
        return x + self.down(torch.relu(y))


def scaled(x: torch.Tensor, how: str) -> torch.Tensor:
    """Compute something that depends on a string, which dynamo takes for a constant."""
    return torch.relu(x) * (2 if how == "double" else 3)


def compile_ten() -> None:
    """Do ten compiles."""
    x = torch.randn(4, 32)
    for _ in range(6):
        torch._dynamo.reset()
        torch.compile(Block(), backend="eager")(x)
    torch._dynamo.reset()
    torch.compile(Breaking(), backend="eager")(x)
    torch._dynamo.reset()
    recompiling = torch.compile(scaled, backend="eager")
    recompiling(x, "double")
    recompiling(x, "triple")


def main(argv: list[str]) -> int:
    """Do as many compiles as asked for, in tens."""
    for _ in range(max(1, int(argv[0]) // 10)):
        compile_ten()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["200"]))
