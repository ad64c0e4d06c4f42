"""An attention whose values are optional and whose length changes from call to call.

Reported: pytorch/pytorch#108950
Right: Nothing to fix for None and a tensor (two graphs); the length is marked dynamic.
Harm: Values of ones where none were given in eager, or the other way round.
"""

import torch
from torch import nn


class Pool(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.query = nn.Parameter(torch.randn(size))
        self.out = nn.Linear(size, size)

    def forward(self, keys, values=None):
        if values is None:
            values = torch.ones_like(keys)
        weights = (keys @ self.query).softmax(-1)
        return self.out(weights @ values)


class Retriever:
    def __init__(self, pool):
        self.pool = torch.compile(pool, backend="eager")

    @torch.no_grad()
    def answer(self, lengths):
        answers = []
        for number, length in enumerate(lengths):
            generator = torch.Generator().manual_seed(number)
            keys = torch.randn(length, 6, generator=generator)
            values = torch.randn(length, 6, generator=generator) if number % 2 else None
            answers.append(self.pool(keys, values))
        return answers


torch.manual_seed(0)
result = Retriever(Pool()).answer([3, 3, 5, 5, 8, 4, 9, 7])
