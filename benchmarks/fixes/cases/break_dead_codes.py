"""A codebook that replaces codes which are no longer used.

Reported: pytorch/pytorch#121349
Right: Replace the codes in the training loop, outside the compiled forward; or torch.where over the
whole codebook.
Harm: Codes replaced that are used, or none replaced.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Codebook(nn.Module):
    def __init__(self, size=4, entries=6, decay=0.5, threshold=0.4):
        super().__init__()
        self.decay, self.threshold = decay, threshold
        self.register_buffer("embed", torch.randn(entries, size))
        self.register_buffer("usage", torch.ones(entries))

    def expire_codes(self, samples):
        expired = self.usage < self.threshold
        if not torch.any(expired):
            return
        picked = samples[: expired.sum()]
        self.embed[expired] = picked
        self.usage[expired] = 1.0

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        index = torch.cdist(flat, self.embed).argmin(-1)
        quantized = F.embedding(index, self.embed).view_as(x)
        if self.training:
            counts = F.one_hot(index, len(self.embed)).float().mean(0)
            self.usage.mul_(self.decay).add_(counts * len(self.embed), alpha=1 - self.decay)
            self.expire_codes(flat)
        return quantized, index


torch.manual_seed(0)
codebook = Codebook()
compiled = torch.compile(codebook, backend="eager")
result = []
with torch.no_grad():
    for step in range(4):
        x = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(step))
        quantized, index = compiled(x)
        result.append((quantized, index, codebook.usage.clone()))
