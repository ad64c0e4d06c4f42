"""A schedule changes a global float, which the code is compiled for."""

import sys

import torch

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "inductor"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

SCALE = torch.tensor(1.0, device=DEVICE)


def scaled(x):
    return torch.sin(x) * SCALE


torch.manual_seed(1)
compiled = torch.compile(scaled, backend=BACKEND)
for epoch in range(4):
    SCALE = torch.tensor(1.0 / (epoch + 1), device=DEVICE)
    for _ in range(5):
        y = compiled(torch.ones(128, device=DEVICE))
print("sum", round(y.sum().item(), 4))
