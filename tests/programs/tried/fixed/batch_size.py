"""Batches have four sizes."""

import sys

import torch

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "inductor"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Scorer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)
        )

    def forward(self, x):
        return self.layers(x).softmax(-1)


torch.manual_seed(1)
scorer = torch.compile(Scorer().to(DEVICE), backend=BACKEND)
with torch.no_grad():
    for size in [32, 24, 16, 7] * 4:
        batch = torch.randn(size, 16, device=DEVICE)
        torch._dynamo.maybe_mark_dynamic(batch, 0)
        scores = scorer(batch)
print("scores", round(scores.max().item(), 4))
