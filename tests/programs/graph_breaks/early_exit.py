"""A network that stops at the first sure layer."""

import torch


class EarlyExit(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x, threshold: float):
        for layer in self.layers:
            x = layer(x).relu()
            confidence = self.head(x).softmax(-1).max()
            if confidence > threshold:
                return self.head(x)
        return self.head(x)


torch.manual_seed(0)
model = torch.compile(EarlyExit())
with torch.no_grad():
    result = [model(torch.ones(1, 8), threshold) for threshold in (0.1, 0.99)]
