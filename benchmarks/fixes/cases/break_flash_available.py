"""An attention that looks for an optional library at each call.

Reported: huggingface/diffusers#13384
Right: Look once when the module is imported and keep the answer in a constant.
Harm: Another branch taken.
"""

import functools
import importlib.metadata
import importlib.util

import torch
from packaging import version
from torch import nn
from torch.nn import functional as F


def is_flash_attn_available():
    if importlib.util.find_spec("flash_attn") is None:
        return False
    return version.parse(importlib.metadata.version("flash_attn")) >= version.parse("2.1.0")


@functools.lru_cache
def is_torch_at_least(minimum):
    return version.parse(importlib.metadata.version("torch")) >= version.parse(minimum)


class Attention(nn.Module):
    def __init__(self, size=8, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(size, 3 * size)

    def forward(self, x):
        batch, length, size = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if is_flash_attn_available():
            raise NotImplementedError("flash attention")
        elif is_torch_at_least("2.0"):
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = (q @ k.transpose(-1, -2) * (size // self.heads) ** -0.5).softmax(-1) @ v
        return y.transpose(1, 2).reshape(batch, length, size)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), Attention(), nn.LayerNorm(8), Attention())
compiled = torch.compile(model, backend="aot_eager")
out = compiled(torch.ones(2, 5, 8))
out.square().mean().backward()
result = [out.detach(), model[1].qkv.weight.grad]
