"""Torchvision's normalize inside a model: it refuses a standard deviation that became zero.

Reported: pytorch/vision#9314
Right: Check the converted values before the compiled call (or once, when made), or assert in the
graph.
Harm: Infinite pixels where there was an error: 1e-9 is zero only after it became half.
"""

import torch
from torch import nn
from torch.nn import functional as F


def normalize(image, mean, std):
    dtype = image.dtype
    mean = torch.as_tensor(mean, dtype=dtype, device=image.device)
    std = torch.as_tensor(std, dtype=dtype, device=image.device)
    if (std == 0).any():
        raise ValueError(f"std evaluated to zero after conversion to {dtype}")
    return (image - mean.view(-1, 1, 1)) / std.view(-1, 1, 1)


class Preprocess(nn.Module):
    def __init__(self, mean, std, dtype=torch.float32):
        super().__init__()
        self.mean, self.std, self.dtype = mean, std, dtype

    def forward(self, image):
        image = F.avg_pool2d(image, 2).to(self.dtype) / 255
        return normalize(image, self.mean, self.std)


class Classifier(nn.Module):
    def __init__(self, preprocess):
        super().__init__()
        self.preprocess, self.head = preprocess, nn.Linear(3, 4)

    def forward(self, image):
        features = self.preprocess(image).float()
        return self.head(torch.relu(features).mean((-1, -2)))


result = []
image = torch.arange(2 * 3 * 8 * 8).reshape(2, 3, 8, 8).remainder(251).float()
mean = [0.485, 0.456, 0.406]
for std, dtype in [
    ([0.229, 0.224, 0.225], torch.float32),
    ([0.5, 1e-9, 0.5], torch.float32),
    ([0.5, 1e-9, 0.5], torch.float16),
    ([0.229, 0.224, 0.225], torch.float16),
]:
    torch.manual_seed(0)
    model = torch.compile(Classifier(Preprocess(mean, std, dtype)), backend="eager")
    try:
        with torch.no_grad():
            result.append(model(image))
    except (ValueError, RuntimeError):
        result.append("refused")
print([r if isinstance(r, str) else round(r.abs().sum().item(), 3) for r in result])
