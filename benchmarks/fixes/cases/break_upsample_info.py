"""A UNet that logs when it must force the size of its upsampling.

Reported: pytorch/pytorch#108650
Right: Log in the caller, guard the line with torch.compiler.is_compiling(), or have dynamo ignore
the logger's method where losing the lines is said.
Harm: Log lines that are lost without a word.
"""

import logging
import sys

import torch
from torch import nn
from torch.nn import functional as F

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(name)s: %(message)s")
logger = logging.getLogger("unet")


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return F.silu(self.conv(x))


class UNet(nn.Module):
    def __init__(self, channels=4):
        super().__init__()
        self.down, self.middle, self.up = Block(channels), Block(channels), Block(channels)

    def forward(self, sample):
        forward_upsample_size = False
        if any(size % 4 for size in sample.shape[-2:]):
            logger.info("Forward upsample size to force interpolation output size.")
            forward_upsample_size = True
        skip = self.down(sample)
        hidden = self.middle(F.avg_pool2d(skip, 2))
        size = skip.shape[-2:] if forward_upsample_size else None
        hidden = F.interpolate(hidden, size=size, scale_factor=None if size else 2)
        return self.up(hidden + skip)


torch.manual_seed(0)
unet = torch.compile(UNet().eval(), backend="eager")
result = []
with torch.no_grad():
    for _ in range(3):
        result.append(unet(torch.ones(1, 4, 10, 10)).mean())
