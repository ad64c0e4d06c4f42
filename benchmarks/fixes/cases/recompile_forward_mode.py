"""A serving engine that tells its model by an enum whether it extends or decodes.

Reported: pytorch/pytorch#142050
Right: Nothing to fix: each mode is a graph of its own, compiled once; no saving is promised.
Harm: A mode that is ignored.
"""

from dataclasses import dataclass
from enum import IntEnum, auto

import torch
from torch import nn


class ForwardMode(IntEnum):
    EXTEND = auto()
    DECODE = auto()
    MIXED = auto()

    def is_extend(self):
        return self in (ForwardMode.EXTEND, ForwardMode.MIXED)


@dataclass
class ForwardBatch:
    mode: ForwardMode
    input_ids: torch.Tensor


class Model(nn.Module):
    def __init__(self, vocab=12, size=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.extend, self.decode = nn.Linear(size, size), nn.Linear(size, size)
        self.head = nn.Linear(size, vocab)

    def forward(self, batch):
        x = self.embed(batch.input_ids)
        x = self.extend(x) if batch.mode.is_extend() else self.decode(x)
        if batch.mode == ForwardMode.MIXED:
            x = x + self.decode(x)
        return self.head(torch.relu(x))


torch.manual_seed(0)
model = torch.compile(Model(), backend="eager")
modes = [ForwardMode.EXTEND, ForwardMode.DECODE, ForwardMode.DECODE, ForwardMode.MIXED] * 2
with torch.no_grad():
    result = [
        model(ForwardBatch(mode, torch.arange(6) + number % 3)) for number, mode in enumerate(modes)
    ]
