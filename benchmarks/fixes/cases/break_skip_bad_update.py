"""A training step that skips updates whose gradient norm is too large or not finite.

Reported: wandb/senpai#3303
Right: Compile the model or the optimizer's step alone and keep the check in the caller; or scale
the gradients by torch.where.
Harm: Bad updates that are applied, or a count of skipped steps that is wrong.
"""

import torch
from torch import nn


class Trainer:
    def __init__(self, model, threshold):
        self.model, self.threshold = model, threshold
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.skipped = 0
        self.apply = torch.compile(self.apply_gradients, backend="eager")

    def apply_gradients(self):
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=1.0)
        if not torch.isfinite(norm) or norm > self.threshold:
            self.skipped += 1
            return norm
        self.optimizer.step()
        return norm

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = (self.model(x) - y).square().mean()
        loss.backward()
        return self.apply()


torch.manual_seed(0)
trainer = Trainer(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)), threshold=20.0)
norms = []
for step, scale in enumerate((1.0, 1.0, 50.0, 1.0, float("inf"), 1.0)):
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(step))
    norms.append(trainer.step(x, torch.full((6, 1), scale)))
print("skipped", trainer.skipped)
result = [norms[:4], trainer.skipped, [p.detach().clone() for p in trainer.model.parameters()]]
