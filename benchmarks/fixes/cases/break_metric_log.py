"""A training step in Lightning's manner: `self.log` keeps running averages as floats.

Reported: Lightning-AI/pytorch-lightning#17177
Right: Compile the model only (or log after the step, in the caller), or capture scalar outputs; the
meters keep floats.
Harm: Meters that hold tensors with their graphs, or other averages.
"""

import torch
from torch import nn
from torch.nn import functional as F


class AverageMeter:
    def __init__(self):
        self.sum, self.count, self.history = 0.0, 0, []

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n
        self.history.append(value)

    @property
    def average(self):
        return self.sum / self.count


class AutoEncoder(nn.Module):
    def __init__(self, size=12):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(size, 6), nn.ReLU(), nn.Linear(6, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, size))
        self.meters = {}

    def log(self, name, value, n):
        self.meters.setdefault(name, AverageMeter()).update(value.item(), n)

    def training_step(self, batch):
        x = batch.flatten(1)
        z = self.encoder(x)
        loss = F.mse_loss(self.decoder(z), x)
        self.log("train_loss", loss, len(x))
        self.log("code_norm", z.norm(), len(x))
        return loss


torch.manual_seed(0)
module = AutoEncoder()
optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
training_step = torch.compile(module.training_step, backend="aot_eager")
for step in range(4):
    loss = training_step(torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(step)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
for name, meter in module.meters.items():
    print(f"{name} {meter.average:.4f}")
result = [
    {name: meter.history for name, meter in module.meters.items()},
    module.encoder[0].weight.grad,
]
