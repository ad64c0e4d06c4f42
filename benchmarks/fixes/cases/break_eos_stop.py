"""Greedy decoding that stops when every sequence has ended, compiled as one function.

Reported: pytorch/pytorch#128071
Right: Compile the step and keep the loop with its stop in the caller.
Harm: Tokens after the end, or a loop without an end.
"""

import torch
from torch import nn

EOS = 0


class LanguageModel(nn.Module):
    def __init__(self, vocab=9, size=12):
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.mix = nn.Linear(size, size)
        self.head = nn.Linear(size, vocab)

    def forward(self, ids):
        return self.head(torch.tanh(self.mix(self.embed(ids).mean(1))))


@torch.compile(backend="eager")
def generate(model, ids, max_new_tokens):
    finished = torch.zeros(ids.shape[0], dtype=torch.bool)
    for _ in range(max_new_tokens):
        next_token = model(ids).argmax(-1)
        next_token = torch.where(finished, EOS, next_token)
        ids = torch.cat([ids, next_token.unsqueeze(-1)], dim=-1)
        finished = finished | (next_token == EOS)
        if finished.all():
            break
    return ids


torch.manual_seed(4)
model = LanguageModel()
with torch.no_grad():
    model.head.bias[EOS] += 0.3
    result = [
        generate(model, torch.tensor([[1, 2, 3], [4, 5, 6]]), 6),
        generate(model, torch.tensor([[7, 7, 7], [8, 8, 1]]), 6),
    ]
