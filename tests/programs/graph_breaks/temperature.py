"""Logits scaled by a learnt temperature, and normalised by a running maximum."""

import torch


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = torch.nn.Parameter(torch.tensor(0.5))
        self.register_buffer("largest", torch.tensor(2.0))
        self.proj = torch.nn.Linear(4, 4)

    def forward(self, x):
        t = float(self.temperature.clamp(min=0.1))
        logits = self.proj(x) / t
        bound = self.largest.item() + 1e-6
        return logits.clamp(-3, 3) * (1.0 / bound)


torch.manual_seed(0)
model = torch.compile(Scaled())
result = model(torch.ones(2, 4))
