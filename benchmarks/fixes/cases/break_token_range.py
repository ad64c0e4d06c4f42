"""An embedding that checks its token ids and names the bad one; the server answers such a request.

Reported: pytorch/pytorch#147282
Right: Check in the caller, before the compiled model, so that the caller's AssertionError and its
message stay.
Harm: A RuntimeError that the server does not catch, or no error at all.
"""

import torch
from torch import nn


class Embedder(nn.Module):
    def __init__(self, vocab=10, size=6):
        super().__init__()
        self.vocab = vocab
        self.embed = nn.Embedding(vocab, size)
        self.proj = nn.Linear(size, size)

    def forward(self, ids):
        assert (ids < self.vocab).all(), f"token {ids.max().item()} is not below {self.vocab}"
        return self.proj(self.embed(ids).mean(1))


class Server:
    def __init__(self, model):
        self.model = model

    def handle(self, request):
        try:
            with torch.no_grad():
                return {"status": 200, "embedding": self.model(request)}
        except AssertionError as error:
            return {"status": 400, "error": str(error)}


torch.manual_seed(0)
server = Server(torch.compile(Embedder(), backend="eager"))
result = [
    server.handle(torch.tensor([[1, 2, 3]])),
    server.handle(torch.tensor([[4, 5, 6]])),
    server.handle(torch.tensor([[1, 2, 42]])),
    server.handle(torch.tensor([[7, 8, 9]])),
]
for answer in result:
    print(answer["status"], answer.get("error", ""))
