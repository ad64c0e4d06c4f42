"""The forward pass prints the size of its gradient-free norm."""

import sys

import torch

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "inductor"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)

    def forward(self, x):
        y = self.layer(x)
        return torch.tanh(y)


torch.manual_seed(1)
block = torch.compile(Block().to(DEVICE), backend=BACKEND)
with torch.no_grad():
    for _ in range(12):
        y = block(torch.ones(8, 32, device=DEVICE))
        print("block", tuple(y.shape))
print("sum", round(y.sum().item(), 3))
