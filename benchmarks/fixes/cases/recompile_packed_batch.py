"""Attention over packed texts: the longest length of each batch comes as a number beside them.

Reported: kijai/ComfyUI-MochiWrapper#44
Right: The longest length (and what is packed) varies: make both dynamic from the first call on.
Harm: Texts that are cut, or padding that is attended to.
"""

import torch
from torch import nn


class PackedAttention(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.qkv = nn.Linear(size, 3 * size)

    def forward(self, x, packed):
        q, k, v = self.qkv(x).chunk(3, -1)
        length = packed["max_length"]
        key = x.new_zeros(packed["count"] * length, x.shape[-1]).index_copy(0, packed["places"], k)
        value = key.new_zeros(key.shape).index_copy(0, packed["places"], v)
        mask = torch.zeros(key.shape[0], dtype=torch.bool).index_fill(0, packed["places"], True)
        scores = (q @ key.T).masked_fill(~mask, float("-inf"))
        return scores.softmax(-1) @ value


def pack(lengths):
    longest = max(lengths)
    places = [torch.arange(length) + longest * row for row, length in enumerate(lengths)]
    return {"max_length": longest, "count": len(lengths), "places": torch.cat(places)}


torch.manual_seed(0)
attend = torch.compile(PackedAttention().eval(), backend="eager")
result = []
with torch.no_grad():
    for seed, lengths in enumerate(([5, 3], [6, 2], [4, 4], [7, 6])):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(sum(lengths), 8, generator=generator)
        result.append(attend(x, pack(lengths)))
