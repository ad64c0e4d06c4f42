"""Whisper's decoding: a logit filter asks the tokenizer for the blank's tokens.

Reported: pytorch/pytorch#149920
Right: Encode the blank once, when the filter is made, and use the ids in the filter.
Harm: Blanks suppressed at every step, or at none.
"""

import re

import torch
from torch import nn


class Tokenizer:
    eot = 1

    def __init__(self, words):
        self.pieces = {word: index for index, word in enumerate(words)}

    def encode(self, text):
        pattern = re.compile("|".join(re.escape(piece) for piece in sorted(self.pieces)))
        return [self.pieces[match.group()] for match in pattern.finditer(text)]


class SuppressBlank:
    def __init__(self, tokenizer, sample_begin):
        self.tokenizer, self.sample_begin = tokenizer, sample_begin

    def apply(self, logits, tokens):
        if tokens.shape[1] == self.sample_begin:
            logits[:, [*self.tokenizer.encode(" "), self.tokenizer.eot]] = float("-inf")


class TextDecoder(nn.Module):
    def __init__(self, tokenizer, sample_begin=2, size=10):
        super().__init__()
        vocab = len(tokenizer.pieces)
        self.embed, self.head = nn.Embedding(vocab, size), nn.Linear(size, vocab)
        self.filters = [SuppressBlank(tokenizer, sample_begin)]

    def forward(self, tokens, audio):
        logits = self.head(torch.tanh(self.embed(tokens).mean(1) + audio))
        for logit_filter in self.filters:
            logit_filter.apply(logits, tokens)
        best = logits.log_softmax(-1).max(-1)
        return torch.cat([tokens, best.indices.unsqueeze(1)], dim=1), best.values


torch.manual_seed(1)
tokenizer = Tokenizer([" ", "<eot>", "<sot>", "yes", "no", "go", "stop"])
decoder = TextDecoder(tokenizer).eval()
with torch.no_grad():
    decoder.head.bias[0] += 1.5
step = torch.compile(decoder, backend="eager")
tokens, total = torch.tensor([[2, 3], [2, 4]]), torch.zeros(2)
audio = torch.randn(2, 10)
with torch.no_grad():
    for _ in range(4):
        tokens, scores = step(tokens, audio)
        total = total + scores
result = [tokens, total]
print(tokens.tolist(), [round(value, 5) for value in total.tolist()])
