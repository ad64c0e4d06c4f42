"""A whole training step under torch.compile: forward, backward and optimizer.

Reported: pytorch/tutorials#3026
Right: Compile the model (or the loss) and leave backward and the optimizer to the caller; or trace
autograd operations where the version has it.
Harm: Weights that are not updated, or gradients that differ.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 10))
        self.head = nn.Linear(10, 4)

    def forward(self, x):
        return self.head(self.features(x))


class Trainer:
    def __init__(self, model, lr=0.05):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.criterion = nn.CrossEntropyLoss()

    def train_step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


torch.manual_seed(0)
trainer = Trainer(Model())
step = torch.compile(trainer.train_step, backend="aot_eager")
losses = []
for number in range(4):
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(8, 10, generator=generator)
    losses.append(step(x, torch.arange(8) % 4))
result = [losses, [p.detach().clone() for p in trainer.model.parameters()]]
