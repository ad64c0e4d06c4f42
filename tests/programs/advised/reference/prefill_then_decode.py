# advised first: size-zero-or-one
import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(16, 8), nn.Linear(8, 16)

    def forward(self, input_ids, state):
        hidden = self.embedding(input_ids)
        state = state + hidden.sum(1)
        return self.head(state), state


torch.manual_seed(0)
decoder = torch.compile(Decoder())
result = []
with torch.no_grad():
    ids, state = torch.arange(16).view(2, 8), torch.zeros(2, 8)
    for _ in range(5):
        logits, state = decoder(ids, state)
        ids = logits.argmax(-1, keepdim=True)
        result.append(ids)
