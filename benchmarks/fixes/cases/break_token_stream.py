"""Sampling that hands out each token as an int, for streaming to a client.

Reported: pytorch/pytorch#128071
Right: Compile the model's step and read the token in the caller's loop; or capture scalar outputs.
Harm: Tensors in the stream where the client expects ints, or other tokens.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, vocab=12, size=10):
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.rnn_in, self.rnn_state = nn.Linear(size, size), nn.Linear(size, size)
        self.head = nn.Linear(size, vocab)

    def forward(self, token, state):
        state = torch.tanh(self.rnn_in(self.embed(token)) + self.rnn_state(state))
        return self.head(state), state


def top_k(logits, k):
    values, _ = torch.topk(logits, k)
    return logits.masked_fill(logits < values[..., -1:], float("-inf"))


class Streamer:
    def __init__(self, model, k=3):
        self.model, self.k = model, k
        self.decode_one = torch.compile(self._decode_one, backend="eager")

    def _decode_one(self, token, state):
        logits, state = self.model(token, state)
        next_token = top_k(logits, self.k).argmax(-1)
        return next_token.item(), next_token, state

    @torch.no_grad()
    def stream(self, start, count):
        token, state = torch.tensor(start), torch.zeros(10)
        for _ in range(count):
            number, token, state = self.decode_one(token, state)
            yield number


torch.manual_seed(1)
streamer = Streamer(Model())
tokens = list(streamer.stream(3, 8))
print("tokens:", " ".join(str(token) for token in tokens))
result = tokens
