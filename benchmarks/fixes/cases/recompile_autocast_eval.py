"""Training under autocast and evaluating without it, with one compiled model.

Reported: pyg-team/pytorch_geometric#8418
Right: Nothing to fix: with and without autocast are two graphs, compiled once each.
Harm: An evaluation in half precision, or training without autocast.
"""

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.fc, self.head = nn.Linear(size, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.relu(self.fc(x)))


class Trainer:
    def __init__(self, model):
        self.model = torch.compile(model, backend="aot_eager")
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def evaluate(self, x, y):
        logits = self.model(x)
        return nn.functional.cross_entropy(logits, y).item()


torch.manual_seed(0)
trainer, result = Trainer(Classifier()), []
for epoch in range(3):
    generator = torch.Generator().manual_seed(epoch)
    x, y = torch.randn(9, 6, generator=generator), torch.arange(9) % 3
    trainer.train(x, y)
    result.append(trainer.evaluate(x, y))
