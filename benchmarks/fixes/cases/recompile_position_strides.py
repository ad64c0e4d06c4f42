"""Decoding with position ids that are sliced from a longer tensor, so that their stride changes.

Reported: huggingface/transformers#32227
Right: Copy the slice in the caller (`.clone(memory_format=torch.contiguous_format)` or
`.contiguous()`).
Harm: Positions of another step.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, vocab=12, size=8, length=16):
        super().__init__()
        self.embed, self.positions = nn.Embedding(vocab, size), nn.Embedding(length, size)
        self.head = nn.Linear(size, vocab)

    def forward(self, ids, position_ids):
        x = self.embed(ids) + self.positions(position_ids)
        return self.head(torch.tanh(x)).argmax(-1)


def prepare_inputs(ids, attention_mask, count):
    position_ids = attention_mask.long().cumsum(-1) - 1
    return {"ids": ids[:, -count:].contiguous(), "position_ids": position_ids[:, -count:]}


@torch.no_grad()
def generate(model, ids, steps, count=2):
    attention_mask = torch.ones_like(ids)
    for _ in range(steps):
        tokens = model(**prepare_inputs(ids, attention_mask, count))
        ids = torch.cat([ids, tokens], dim=-1)
        attention_mask = torch.cat([attention_mask, torch.ones_like(tokens)], dim=-1)
    return ids


torch.manual_seed(0)
model = torch.compile(Model().eval(), backend="eager", dynamic=False)
result = generate(model, torch.tensor([[1, 2, 3], [4, 5, 6]]), 5)
