"""Unpadding for variable-length attention, as flash-attn's bert_padding does.

Reported: pytorch/pytorch#148845
Right: Unpad in the caller, before the compiled encoder; or capture scalars and dynamic output
shapes together.
Harm: nonzero_static with a fill that selects row 0, or lengths that are wrong.
"""

import torch
from torch import nn
from torch.nn import functional as F


def unpad_input(hidden, attention_mask):
    seqlens = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(attention_mask.flatten(), as_tuple=False).flatten()
    max_seqlen = seqlens.max().item()
    cu_seqlens = F.pad(torch.cumsum(seqlens, dim=0, dtype=torch.int32), (1, 0))
    flat = hidden.reshape(-1, hidden.shape[-1])
    return flat[indices], indices, cu_seqlens, max_seqlen


def pad_input(hidden, indices, batch, length):
    out = hidden.new_zeros(batch * length, hidden.shape[-1])
    return out.index_copy(0, indices, hidden).view(batch, length, -1)


class Encoder(nn.Module):
    def __init__(self, vocab=15, size=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.up = nn.Linear(size, size * 2)
        self.down = nn.Linear(size * 2, size)
        self.norm = nn.LayerNorm(size)

    def forward(self, ids, attention_mask):
        x = self.embed(ids)
        flat, indices, _cu_seqlens, max_seqlen = unpad_input(x, attention_mask)
        flat = flat + self.down(F.gelu(self.up(self.norm(flat))))
        return pad_input(flat, indices, *ids.shape) / max_seqlen


torch.manual_seed(0)
model = Encoder().eval()
compiled = torch.compile(model, backend="eager")
result = []
with torch.no_grad():
    for lengths in ([6, 2], [4, 3], [6, 6]):
        mask = (torch.arange(6) < torch.tensor(lengths)[:, None]).long()
        result.append(compiled(torch.arange(12).view(2, 6), mask))
