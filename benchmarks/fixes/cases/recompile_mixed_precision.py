"""A decoder layer that gets its target and memory in half precision from some callers only.

Reported: pytorch/pytorch#128134
Right: Cast both inputs (target and memory) to one dtype in the caller: both vary together.
Harm: Results in another dtype than the caller expects, without a word.
"""

import torch
from torch import nn
from torch.nn import functional as F


class DecoderLayer(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.query, self.kv = nn.Linear(size, size), nn.Linear(size, 2 * size)
        self.norm = nn.LayerNorm(size)

    def forward(self, tgt, memory):
        q = self.query(tgt.float())
        k, v = self.kv(memory.float()).chunk(2, -1)
        out = self.norm(q + F.scaled_dot_product_attention(q, k, v))
        return out.to(tgt.dtype)


class Tracker:
    def __init__(self, layer):
        self.layer = torch.compile(layer, backend="eager")

    @torch.no_grad()
    def track(self, frames):
        memory, outputs = torch.zeros(1, 4, 8), []
        for number, frame in enumerate(frames):
            if number % 2:
                frame, memory = frame.bfloat16(), memory.bfloat16()
            else:
                frame, memory = frame.float(), memory.float()
            memory = self.layer(frame, memory)
            outputs.append(memory.float())
        return outputs


torch.manual_seed(0)
frames = torch.randn(5, 1, 4, 8, generator=torch.Generator().manual_seed(0))
result = Tracker(DecoderLayer()).track(list(frames))
