"""Training with timm's mixup: numpy draws the share of each batch.

Reported: huggingface/pytorch-image-models#218
Right: Draw the share (and mix) in the data loader or the caller, and pass the mixed batch in.
Harm: The same share at each step, or another sequence of numbers.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Mixup:
    def __init__(self, alpha, num_classes):
        self.alpha, self.num_classes = alpha, num_classes

    def __call__(self, x, target):
        lam = np.random.beta(self.alpha, self.alpha)
        x = x * lam + x.flip(0) * (1.0 - lam)
        target = F.one_hot(target, self.num_classes).float()
        return x, target * lam + target.flip(0) * (1.0 - lam)


class Trainer:
    def __init__(self, model):
        self.model, self.mixup = model, Mixup(0.4, 3)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.compute_loss = torch.compile(self._compute_loss, backend="aot_eager")

    def _compute_loss(self, x, target):
        x, target = self.mixup(x, target)
        return -(target * F.log_softmax(self.model(x), -1)).sum(-1).mean()

    def fit(self, batches):
        losses = []
        for x, target in batches:
            loss = self.compute_loss(x, target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses


torch.manual_seed(0)
np.random.seed(0)
trainer = Trainer(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)))
batches = [(torch.randn(6, 6), torch.arange(6) % 3) for _ in range(4)]
losses = trainer.fit(batches)
result = [losses, trainer.model[0].weight.grad]
