"""Test-time augmentation with closures that hold their shift and gain.

Reported: pytorch/pytorch#109427
Right: Apply the augmentation in the caller, or pass shift and gain as tensors.
Harm: Every view with the first augmentation.
"""

import torch
from torch import nn


def make_augment(shift, gain):
    def augment(x):
        return torch.roll(x, shift, dims=-1) * gain

    return augment


class Model(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 3, padding=1)
        self.head = nn.Linear(4 * size, 2)

    def forward(self, x, augment=None):
        if augment is not None:
            x = augment(x)
        return self.head(torch.relu(self.conv(x)).flatten(1))


def predict(model, x, augmentations):
    views = [model(x)]
    for shift, gain in augmentations:
        views.append(model(x, augment=make_augment(shift, gain)))
    return torch.stack(views).softmax(-1).mean(0)


torch.manual_seed(0)
model = torch.compile(Model().eval(), backend="eager")
augmentations = [(1, 1.0), (2, 0.9), (-1, 1.1), (-2, 0.8), (3, 1.2)]
with torch.no_grad():
    x = torch.randn(3, 1, 8, generator=torch.Generator().manual_seed(0))
    result = [predict(model, x * scale, augmentations) for scale in (1.0, 2.0)]
