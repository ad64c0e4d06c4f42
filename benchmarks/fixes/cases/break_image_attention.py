"""A vision encoder over packed images: each block splits the tokens by image to attend.

Reported: huggingface/transformers#45816
Right: A mask of same-image pairs built from cu_seqlens, or the lengths as a list from the caller.
Harm: Attention from one image to another.
"""

import torch
from torch import nn
from torch.nn import functional as F


class VisionBlock(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(size)
        self.qkv, self.proj = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, hidden, cu_seqlens):
        tokens = hidden.shape[0]
        qkv = self.qkv(self.norm(hidden)).reshape(tokens, 3, self.heads, -1)
        query, key, value = qkv.permute(1, 2, 0, 3).unsqueeze(1).unbind(0)
        lengths = cu_seqlens[1:] - cu_seqlens[:-1]
        splits = [torch.split(t, lengths.tolist(), dim=2) for t in (query, key, value)]
        outputs = [F.scaled_dot_product_attention(q, k, v) for q, k, v in zip(*splits)]
        output = torch.cat(outputs, dim=2)
        return hidden + self.proj(output[0].transpose(0, 1).reshape(tokens, -1))


class VisionEncoder(nn.Module):
    def __init__(self, patch=12, size=16, depth=2):
        super().__init__()
        self.patch = nn.Linear(patch, size)
        self.blocks = nn.ModuleList(VisionBlock(size, 2) for _ in range(depth))

    def forward(self, pixels, grid_thw):
        hidden = self.patch(pixels)
        cu_seqlens = F.pad(grid_thw.prod(-1).cumsum(0), (1, 0))
        for block in self.blocks:
            hidden = block(hidden, cu_seqlens)
        return hidden


torch.manual_seed(0)
encoder = torch.compile(VisionEncoder().eval(), backend="eager")
pixels = torch.randn(16, 12)
result = []
with torch.no_grad():
    for grid in ([[1, 2, 4], [1, 2, 4]], [[1, 2, 2], [1, 2, 6]], [[1, 4, 4]]):
        result.append(encoder(pixels, torch.tensor(grid)))
print([round(output.abs().sum().item(), 4) for output in result])
