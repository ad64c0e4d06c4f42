"""The forward pass logs through the standard library."""

import logging
import sys

import torch

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "inductor"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

logger = logging.getLogger("model")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)

    def forward(self, x):
        x = self.layer(x)
        return torch.sigmoid(x)


torch.manual_seed(1)
model = torch.compile(Model().to(DEVICE), backend=BACKEND)
for _ in range(12):
    y = model(torch.ones(4, 16, device=DEVICE))
    logger.warning("layer done")
print("sum", round(y.sum().item(), 3))
