"""A sampling loop that stops at the end token."""

import torch

torch.manual_seed(0)
embedding = torch.nn.Embedding(16, 8)
head = torch.nn.Linear(8, 16)
END = 3


@torch.compile
def sample(token, temperature):
    tokens = []
    for _ in range(4):
        logits = head(embedding(token)) / temperature.item()
        token = logits.argmax(-1)
        if token.item() == END:
            break
        tokens.append(token)
    return torch.stack(tokens)


with torch.no_grad():
    result = sample(torch.tensor(1), torch.tensor(0.7))
