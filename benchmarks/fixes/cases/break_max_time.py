"""Generation with stopping criteria, one of which is a time limit.

Reported: pytorch/pytorch#115122
Right: Compile the model's step and ask the criteria in the caller's loop.
Harm: A limit that is compared with the time of tracing.
"""

import time

import torch
from torch import nn


class MaxLengthCriteria:
    def __init__(self, max_length):
        self.max_length = max_length

    def __call__(self, ids):
        return ids.shape[-1] >= self.max_length


class MaxTimeCriteria:
    def __init__(self, max_time):
        self.max_time = max_time
        self.initial_timestamp = time.time()

    def __call__(self, ids):
        return time.time() - self.initial_timestamp > self.max_time


class Generator(nn.Module):
    def __init__(self, vocab=11, size=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.head = nn.Linear(size, vocab)

    def forward(self, ids, criteria):
        while True:
            logits = self.head(torch.tanh(self.embed(ids).mean(1)))
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=-1)
            if any(criterion(ids) for criterion in criteria):
                return ids


torch.manual_seed(0)
generate = torch.compile(Generator(), backend="eager")
criteria = [MaxTimeCriteria(3600.0), MaxLengthCriteria(8)]
with torch.no_grad():
    result = [generate(torch.tensor([[start, 2, 3]]), criteria) for start in (1, 5)]
