"""The demo's program: a small model trained and served under torch.compile, with common problems.

`make demo` runs it under the collector, on CUDA if torch sees a GPU, else on the CPU.
"""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def choose_backend() -> str:
    """Return inductor if it can build code: on a GPU, or with a C++ compiler and Python's
    headers.
    """
    compiler = any(shutil.which(name) for name in ("g++", "clang++", "c++"))
    headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    return "inductor" if DEVICE == "cuda" or (compiler and headers) else "aot_eager"


BACKEND = choose_backend()


class Block(nn.Module):
    """A residual block that compiles in one piece."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Chatty(nn.Module):
    """A model that prints, branches on data and reads a number back: three graph breaks."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.block = Block(width)
        self.head = nn.Linear(width, 8)
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        x = self.block(x)
        if x.mean() > 0:
            x = x * 0.5
        print(f"step {self.step}: batch of {x.shape[0]}")
        return self.head(x) * x.abs().max().item()


def scale(x: torch.Tensor, factor: int, mode: str) -> torch.Tensor:
    """Recompile for many factors and two modes."""
    return x.sin() * factor if mode == "sin" else x.cos() * factor


def train(steps: int = 3) -> None:
    """Train a clean model: forward, backward, no graph break."""
    model = nn.Sequential(Block(64), Block(64), nn.Linear(64, 1)).to(DEVICE)
    compiled = torch.compile(model, backend=BACKEND)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(steps):
        loss = compiled(torch.randn(16, 64, device=DEVICE)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def serve() -> None:
    """Serve batches of many sizes through the chatty model, and scale with many factors."""
    chatty = torch.compile(Chatty().to(DEVICE), backend=BACKEND)
    with torch.no_grad():
        for batch in (4, 8, 3):
            chatty(torch.randn(batch, 64, device=DEVICE))
    # aot_eager: dynamo and AOTAutograd as always, without a C++ compiler's time for each of a dozen
    # recompiles.
    scaled = torch.compile(scale, backend="aot_eager")
    for factor in range(1, 6):
        scaled(torch.randn(4, device=DEVICE), factor, "sin")
    scaled(torch.randn(4, device=DEVICE), 1, "cos")
    scaled(torch.randn(4, device=DEVICE, dtype=torch.float64), 1, "sin")
    scaled(torch.randn(4, device=DEVICE, requires_grad=True), 1, "sin")


def stubborn() -> None:
    """Recompile until dynamo gives up, with a string argument that is different in every call."""

    def label(x: torch.Tensor, name: str) -> torch.Tensor:
        return x + len(name) if name.startswith("a") else x - 1

    labelled = torch.compile(label, backend="eager")
    for index in range(10):
        labelled(torch.randn(2, device=DEVICE), f"a{index}")


def graphs() -> None:
    """Use CUDA graphs on a GPU, including a function that they must skip."""
    fast = torch.compile(lambda x, y: (x @ y).relu(), mode="reduce-overhead")
    slow = torch.compile(lambda x, y: (x @ y.to(DEVICE)).relu(), mode="reduce-overhead")
    x = torch.randn(32, 32, device=DEVICE)
    for _ in range(3):
        fast(x, x)
        slow(x, torch.randn(32, 32))


def main() -> None:
    """Run every part."""
    train()
    serve()
    stubborn()
    if DEVICE == "cuda":
        graphs()
    print(f"the demo program is done: {DEVICE}, {BACKEND}")


if __name__ == "__main__":
    main()
