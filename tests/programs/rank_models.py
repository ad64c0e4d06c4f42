"""Models for `bench --ddp` and `--fsdp`: several buckets of gradients, ranks that fail.

compileboard-collect bench --only path:tests/programs/rank_models.py,model:wide_mlp --training --ddp
"""

import os
import signal

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import compileboard

WIDTH = 1312  # 4 layers are 27.5 MB of gradients: more than DDP's bucket of 25 MiB


@compileboard.bench.model(batch_size=8)
def wide_mlp(batch_size):
    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*layers), (torch.randn(batch_size, WIDTH),)


class Checkpointed(nn.Module):
    """Blocks that compute their activations again in the backward pass, as a model of transformers
    does when asked.
    """

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(384, 384), nn.GELU()) for _ in range(3))
        self.is_checkpointed = False

    def gradient_checkpointing_enable(self):
        self.is_checkpointed = True

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.is_checkpointed else block(x)
        return x


@compileboard.bench.model(batch_size=8)
def checkpointed(batch_size):
    return Checkpointed(), (torch.randn(batch_size, 384),)


@compileboard.bench.model(batch_size=8)
def unsynchronized(batch_size):
    """A model whose ranks keep their own gradients."""
    forward = DistributedDataParallel.forward

    def without_exchange(self, *inputs):
        with self.no_sync():
            return forward(self, *inputs)

    DistributedDataParallel.forward = without_exchange
    return nn.Linear(16, 16), (torch.randn(batch_size, 16),)


@compileboard.bench.model(batch_size=8)
def killed(batch_size):
    """A model whose rank 1 is killed when it is built."""
    if os.environ.get("RANK") == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return nn.Linear(16, 16), (torch.randn(batch_size, 16),)


@compileboard.bench.model(batch_size=8)
def exhausting(batch_size):
    """A model whose rank 1 asks for more memory than there is."""

    class Exhausting(nn.Linear):
        def forward(self, x):
            if os.environ.get("RANK") == "1":
                torch.empty(1 << 50, device=x.device)
            return super().forward(x)

    return Exhausting(16, 16), (torch.randn(batch_size, 16),)
