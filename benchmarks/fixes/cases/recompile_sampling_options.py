"""A server whose requests bring their own temperature and top-k.

Reported: WhisperSpeech/WhisperSpeech#44
Right: Pass the temperature as a tensor and let k be a tensor's bound or a constant of few values;
both vary, so one alone is not enough.
Harm: Every request sampled with the first one's options.
"""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Request:
    prompt: list
    temperature: float = 1.0
    top_k: int = 5


class Model(nn.Module):
    def __init__(self, vocab=16, size=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.head = nn.Linear(size, vocab)

    def forward(self, ids):
        return self.head(torch.tanh(self.embed(ids).mean(-2)))


@torch.compile(backend="eager")
def generate_next(model, ids, temperature, top_k):
    logits = model(ids) / temperature
    values, _ = torch.topk(logits, top_k)
    logits = logits.masked_fill(logits < values[-1], float("-inf"))
    return logits.softmax(-1)


def serve(model, requests):
    answers = []
    with torch.no_grad():
        for request in requests:
            ids = torch.tensor(request.prompt)
            answers.append(generate_next(model, ids, request.temperature, request.top_k))
    return answers


torch.manual_seed(0)
requests = [
    Request([1, 2, 3], 1.0, 5),
    Request([4, 5, 6], 0.7, 5),
    Request([7, 8, 9], 0.7, 8),
    Request([1, 3, 5], 0.9, 3),
    Request([2, 4, 6], 1.2, 10),
    Request([9, 9, 9], 0.5, 4),
]
result = serve(Model(), requests)
