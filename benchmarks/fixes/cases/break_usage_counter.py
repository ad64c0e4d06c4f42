"""A codebook that writes how often each code is used into a report of Python numbers.

Reported: pytorch/torchdynamo#943
Right: Return the counts as a tensor and make the report in the caller.
Harm: A report that holds tensors, or other counts.
"""

import torch
from torch import nn


class Codebook(nn.Module):
    def __init__(self, entries=5, size=3):
        super().__init__()
        self.embed = nn.Embedding(entries, size)
        self.usage = {}

    def forward(self, x):
        codes = torch.cdist(x, self.embed.weight).argmin(-1)
        counts = torch.bincount(codes, minlength=self.embed.num_embeddings)
        for code, count in enumerate(counts.tolist()):
            self.usage[code] = self.usage.get(code, 0) + count
        return self.embed(codes)


torch.manual_seed(0)
model = Codebook()
compiled = torch.compile(model, backend="eager")
with torch.no_grad():
    outputs = [
        compiled(torch.randn(7, 3, generator=torch.Generator().manual_seed(step)))
        for step in range(3)
    ]
print(model.usage)
result = [outputs, model.usage]
