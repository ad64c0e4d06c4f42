"""Masked-language-model training: the loss is the mean over the tokens that have a label.

Reported: pytorch/pytorch#114220
Right: Weigh by the mask and divide by its sum (or F.cross_entropy's ignore_index), or capture
dynamic output shapes.
Harm: A mean over other tokens, or wrong gradients.
"""

import torch
from torch import nn
from torch.nn import functional as F

IGNORE = -100


class MaskedLM(nn.Module):
    def __init__(self, vocab=17, size=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.encoder = nn.TransformerEncoderLayer(size, 2, 16, dropout=0.0, batch_first=True)
        self.lm_head = nn.Linear(size, vocab)

    def forward(self, input_ids):
        return self.lm_head(self.encoder(self.embed(input_ids)))


def mask_tokens(ids, generator, mask_id=16):
    labels = ids.clone()
    chosen = torch.rand(ids.shape, generator=generator) < 0.3
    labels[~chosen] = IGNORE
    return torch.where(chosen, mask_id, ids), labels


@torch.compile(backend="aot_eager")
def training_loss(model, ids, labels):
    logits = model(ids)
    keep = labels != IGNORE
    picked = logits[keep]
    targets = labels[keep]
    return F.cross_entropy(picked, targets)


torch.manual_seed(0)
model = MaskedLM()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(0)
losses = []
for step in range(4):
    ids, labels = mask_tokens(torch.randint(0, 16, (4, 10), generator=generator), generator)
    loss = training_loss(model, ids, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, model.lm_head.weight.grad]
