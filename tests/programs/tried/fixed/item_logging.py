"""The mean is logged from the number that item() gives."""

import sys

import torch

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "inductor"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Regressor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(64, 64)
        self.second = torch.nn.Linear(64, 1)
        self.last_mean = 0.0

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        self.last_mean = hidden.mean().detach()
        return self.second(hidden)


torch.manual_seed(1)
model = torch.compile(Regressor().to(DEVICE), backend=BACKEND)
for _ in range(12):
    y = model(torch.randn(32, 64, device=DEVICE))
print("last mean", round(float(model.last_mean), 4), "sum", round(y.sum().item(), 4))
