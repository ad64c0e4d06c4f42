"""Regional compilation: each block of a transformer is compiled on its own, with its own processor.

Reported: pytorch/pytorch#163329
Right: Give the blocks what they share (one processor, no number of their own in forward), so that
one graph serves all; a higher limit only hides it.
Harm: Blocks that lose their own setting.
"""

import torch
from torch import nn
from torch.nn import functional as F


class AttnProcessor:
    def __init__(self, name, scale):
        self.name, self.scale = name, scale

    def __call__(self, attn, x):
        q, k, v = attn.qkv(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, scale=self.scale)


class Block(nn.Module):
    def __init__(self, size, number):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.qkv = nn.Linear(size, 3 * size)
        self.processor = AttnProcessor(f"blocks.{number}.attn", 1.0 / (number + 2))

    def forward(self, x):
        return x + self.processor(self, self.norm(x))


class Flux(nn.Module):
    def __init__(self, size=8, depth=6):
        super().__init__()
        self.blocks = nn.ModuleList(Block(size, number) for number in range(depth))
        self.out = nn.Linear(size, size)

    def compile_repeated_blocks(self):
        for block in self.blocks:
            block.compile(backend="eager")

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)


torch.manual_seed(0)
model = Flux().eval()
model.compile_repeated_blocks()
with torch.no_grad():
    result = [model(torch.full((1, 4, 8), float(n))) for n in range(2)]
