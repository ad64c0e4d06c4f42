"""Models compiled with inductor's provenance tracking at each level, in turns within one process.

    python -m benchmarks.overhead.provenance_program gpt --rounds 5 [--cold]

Nothing comes from inductor's caches; unless `--cold` empties the folder before each compile, the
machine code of the kernels is found on disk, because the C++ compiler's time hides torch's Python,
which the tracking is part of. It prints [wall seconds, CPU seconds, those of them inside the
functions of the tracking] of each round and level as JSON.

    python -m benchmarks.overhead.provenance_program gpt --once

compiles once with the caches that TORCHINDUCTOR_CACHE_DIR holds, and prints the hits beside it.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch._dynamo
import torch._functorch.config
import torch._inductor.config
from torch import nn
from torch._inductor.codecache import PyCodeCache
from torch._inductor.utils import fresh_cache
from torch.nn import functional

LEVELS = (0, 1, 2)
# What runs for the tracking alone, beside what level 1 adds to passes. torch 2.9 to 2.13.
FUNCTIONS = (
    ("torch._inductor.debug", "set_kernel_post_grad_provenance_tracing"),
    ("torch._inductor.debug", "create_mapping_pre_post_grad_nodes"),
    ("torch._inductor.debug", "dump_inductor_provenance_info"),
    ("torch.fx.traceback", "get_graph_provenance_json"),
)
# On the clock, of the CPU in this process and its children, of the CPU inside FUNCTIONS
Seconds = tuple[float, float, float]
_inside = 0.0


class Block(nn.Module):
    """A decoder's block: attention and a feed-forward network, both residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the block."""
        batch, time_steps, width = x.shape
        qkv = self.qkv(self.before(x)).view(batch, time_steps, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(batch, time_steps, width))
        return x + self.down(functional.gelu(self.up(self.after(x))))


class Gpt(nn.Module):
    """A decoder of two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 128)
        self.blocks = nn.ModuleList(Block(128, 4) for _ in range(2))
        self.head = nn.Linear(128, 1000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU()),
            *(nn.Conv2d(inner, inner, 3, padding=1, bias=False), nn.BatchNorm2d(inner), nn.ReLU()),
            *(nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the block."""
        return functional.relu(x + self.layers(x))


def make_resnet() -> nn.Module:
    """Make a ResNet of four blocks in two stages."""
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 7, stride=2, padding=3), nn.BatchNorm2d(64), nn.ReLU()),
        *(Bottleneck(64, 16) for _ in range(2)),
        *(nn.Conv2d(64, 128, 1, stride=2), *(Bottleneck(128, 32) for _ in range(2))),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)),
    )


def make_encoder() -> nn.Module:
    """Make torch's own transformer encoder of two layers."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "gpt": (Gpt, lambda: torch.randint(0, 1000, (2, 32))),
    "resnet": (make_resnet, lambda: torch.randn(2, 3, 64, 64)),
    "encoder": (make_encoder, lambda: torch.randn(2, 32, 128)),
}


def compile_once(model: nn.Module, value: torch.Tensor) -> Seconds:
    """Compile a training step, forward and backward, and return its seconds."""
    torch._dynamo.reset()
    # A code without the tracking is equal each time and would be found in the process; with it, a
    # backward's has other numbers of calls.
    PyCodeCache.cache_clear()
    gc.collect()
    begin, begin_cpu, begin_inside = time.perf_counter(), _read_cpu_clock(), _inside
    torch.compile(model)(value).sum().backward()
    if value.is_cuda:
        torch.cuda.synchronize()
    inside = _inside - begin_inside
    return time.perf_counter() - begin, _read_cpu_clock() - begin_cpu, inside


def time_functions() -> None:
    """Add up the time inside the functions of the tracking, wherever they were imported."""
    for module_name, name in FUNCTIONS:
        original: Any = getattr(importlib.import_module(module_name), name)
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get(name) is original:
                setattr(module, name, _timed(original))


def _timed(function: Callable[..., object]) -> Callable[..., object]:
    def timed(*arguments: object, **named: object) -> object:
        global _inside
        begin = time.process_time()
        try:
            return function(*arguments, **named)
        finally:
            _inside += time.process_time() - begin

    return timed


def _read_cpu_clock() -> float:
    """Return the CPU seconds of this process and of the compilers that it started."""
    return sum(os.times()[:4])


def measure(model: nn.Module, value: torch.Tensor, rounds: int, cold: bool) -> list[list[Seconds]]:
    """Compile at each level once a round, in an order drawn for each."""
    rng = random.Random(0)
    torch._inductor.config.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False
    time_functions()
    compile_once(model, value)  # what only the first compile of a process pays
    timings = []
    for _ in range(rounds):
        times: dict[int, Seconds] = {}
        for level in rng.sample(LEVELS, len(LEVELS)):
            torch._inductor.config.trace.provenance_tracking_level = level
            with fresh_cache() if cold else nullcontext():
                times[level] = compile_once(model, value)
        timings.append([times[level] for level in LEVELS])
    return timings


def main(argv: list[str] | None = None) -> int:
    """Measure and print the seconds."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead.provenance_program", description=__doc__
    )
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="empty the cache before each compile")
    parser.add_argument("--once", action="store_true", help="one compile, with the caches on")
    arguments = parser.parse_args(argv)
    torch.manual_seed(0)
    make_model, make_value = MODELS[arguments.model]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, value = make_model().to(device), make_value().to(device)
    if arguments.once:
        torch._dynamo.reset()
        seconds = compile_once(model, value)
        found = torch._dynamo.utils.counters["aot_autograd"]
        print(json.dumps([*seconds[:2], found["autograd_cache_hit"], found["autograd_cache_miss"]]))
        return 0
    print(json.dumps(measure(model, value, arguments.rounds, arguments.cold)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
