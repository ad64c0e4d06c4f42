"""A detection head that is shared by the levels of a feature pyramid, down to a single cell.

Reported: pytorch/vision users, a head that is compiled and called for each level
Right: Mark height and width dynamic; the level of one cell keeps a compile of its own.
Harm: Levels that are padded or resized.
"""

import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, size=4, classes=3):
        super().__init__()
        self.conv = nn.Conv2d(size, size, 3, padding=1)
        self.norm = nn.GroupNorm(2, size)
        self.out = nn.Conv2d(size, classes, 1)

    def forward(self, level):
        return self.out(torch.relu(self.norm(self.conv(level)))).flatten(2).transpose(1, 2)


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = Head()
        self.head.compile(backend="eager")

    def forward(self, image):
        outputs = []
        for _ in range(5):
            outputs.append(self.head(image))
            image = nn.functional.max_pool2d(image, 2)
        return torch.cat(outputs, 1)


torch.manual_seed(0)
model = Pyramid().eval()
result = []
with torch.no_grad():
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        result.append(model(torch.randn(2, 4, 16, 16, generator=generator)))
