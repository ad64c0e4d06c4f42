"""Prints that were left in a forward pass."""

import torch


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        print("in", x.shape)
        h = self.inner(x).relu()
        print(f"mean {h.mean():.4f}, max {h.max():.4f}")
        if h.ndim > 1:
            print("weights", self.inner.weight.dtype, h.sum(dim=0)[:2])
        return h + x


torch.manual_seed(0)
model = torch.compile(Block())
with torch.no_grad():
    result = [model(torch.ones(2, 8)) for _ in range(2)]
