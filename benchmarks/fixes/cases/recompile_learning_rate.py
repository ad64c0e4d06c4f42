"""A compiled optimizer step with a learning-rate schedule.

Reported: pytorch/tutorials#2874
Right: Make the learning rate a tensor: `lr=torch.tensor(0.01)`.
Harm: A learning rate that stays at its first value.
"""

import torch
from torch import nn


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, total_iters=6)
        self.optimizer_step = torch.compile(self._optimizer_step, backend="eager")

    def _optimizer_step(self):
        self.optimizer.step()

    def fit(self, batches):
        rates = []
        for x, y in batches:
            loss = nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer_step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            rates.append(float(self.scheduler.get_last_lr()[0]))
        return rates


def make_batches(count):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(4, 6, generator=generator), torch.zeros(4, 2)) for _ in range(count)]


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
trainer = Trainer(model)
rates = trainer.fit(make_batches(6))
print(" ".join(f"{rate:.4f}" for rate in rates))
result = [rates, [p.detach().clone() for p in model.parameters()]]
