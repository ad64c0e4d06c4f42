"""Layers that are skipped at random while training."""

import random

import torch


class Stack(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            if self.training and random.random() < 0.0:
                continue
            x = layer(x).relu()
        return x


torch.manual_seed(0)
model = torch.compile(Stack())
result = model(torch.ones(2, 4))
