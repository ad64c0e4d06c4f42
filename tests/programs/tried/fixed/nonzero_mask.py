"""A loss picks the valid positions with a boolean mask."""

import sys

import torch

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "inductor"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def masked_loss(scores, labels):
    valid = labels >= 0
    squares = torch.where(valid, (scores - 1.0).square(), 0.0)
    return squares.sum() / valid.sum()


torch.manual_seed(1)
loss = torch.compile(masked_loss, backend=BACKEND)
for _ in range(12):
    scores = torch.randn(64, device=DEVICE)
    labels = torch.arange(64, device=DEVICE) - 5
    value = loss(scores, labels)
print("loss", round(value.item(), 4))
