"""The module counts its calls in an int, which the code is compiled for."""

import sys

import torch

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "inductor"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Warmup(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return self.layer(x) * torch.clamp(self.calls / 10, max=1.0)


torch.manual_seed(1)
model = torch.compile(Warmup().to(DEVICE), backend=BACKEND)
with torch.no_grad():
    for _ in range(14):
        y = model(torch.ones(4, 16, device=DEVICE))
print("sum", round(y.sum().item(), 3))
