"""Fine-tuning whose collator pads each batch to its longest text; compiled without dynamic shapes.

Reported: pytorch/pytorch#188150
Right: Pad to a fixed length (or to few lengths) with the mask, or take dynamic=False out and mark
the length dynamic.
Harm: Padding that is attended to or counted in the loss.
"""

import torch
from torch import nn
from torch.nn import functional as F

PAD = 0


class Collator:
    def __call__(self, texts):
        length = max(map(len, texts))
        ids = torch.tensor([text + [PAD] * (length - len(text)) for text in texts])
        return {"input_ids": ids, "attention_mask": (ids != PAD).float()}


class Classifier(nn.Module):
    def __init__(self, vocab=20, size=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.fc = nn.Linear(size, size)
        self.head = nn.Linear(size, 2)

    def forward(self, input_ids, attention_mask):
        x = torch.relu(self.fc(self.embed(input_ids))) * attention_mask.unsqueeze(-1)
        return self.head(x.sum(1) / attention_mask.sum(1, keepdim=True))


def make_texts(seed, lengths):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, 20, (n,), generator=generator).tolist() for n in lengths]


torch.manual_seed(0)
model = Classifier()
compiled = torch.compile(model, backend="aot_eager", dynamic=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
collate, losses = Collator(), []
for step, lengths in enumerate(([5, 3], [7, 2], [4, 4], [9, 5], [6, 6], [8, 3], [5, 5])):
    batch = collate(make_texts(step, lengths))
    loss = F.cross_entropy(compiled(**batch), torch.tensor([0, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, model.head.weight.grad]
