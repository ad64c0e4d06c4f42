"""A calibration table is read by numpy."""

import sys

import torch

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "inductor"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def calibrate(x):
    y = torch.where(x < 0.5, x * 1.6, 0.8 + (x - 0.5) * 0.4)
    return y.clamp(0, 1) * 2


torch.manual_seed(1)
calibrated = torch.compile(calibrate, backend=BACKEND)
for _ in range(12):
    y = calibrated(torch.linspace(0, 1, 101, device=DEVICE))
print("sum", round(y.sum().item(), 4))
