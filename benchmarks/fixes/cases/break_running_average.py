"""Batch norm that keeps the plain average of all batches (momentum=None), as for weight averaging.

Reported: pytorch/pytorch#194504
Right: A norm whose averaging factor stays a tensor, or leave torch's own norm out of the graph.
Harm: A fixed momentum, or a batch that is not counted: other running statistics.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Classifier(nn.Module):
    def __init__(self, features=6, size=10, classes=3):
        super().__init__()
        self.stem = nn.Linear(features, size)
        self.norm = nn.BatchNorm1d(size, momentum=None)
        self.head = nn.Linear(size, classes)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.stem(x))))


class Trainer:
    def __init__(self, model):
        self.model = model
        self.compiled = torch.compile(model, backend="eager")
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fit(self, batches):
        losses = []
        self.model.train()
        for x, target in batches:
            loss = F.cross_entropy(self.compiled(x), target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses

    @torch.no_grad()
    def predict(self, x):
        self.model.eval()
        return self.compiled(x).softmax(-1)


torch.manual_seed(0)
trainer = Trainer(Classifier())
batches = [(torch.randn(9, 6) * (i + 1) + i, torch.arange(9) % 3) for i in range(4)]
losses = trainer.fit(batches)
prediction = trainer.predict(batches[0][0])
norm = trainer.model.norm
result = [losses, prediction, norm.running_mean, norm.running_var, norm.num_batches_tracked]
print([round(loss, 5) for loss in losses], round(prediction[:, 0].sum().item(), 5))
print(round(norm.running_mean.sum().item(), 5), round(norm.running_var.sum().item(), 4))
print(int(norm.num_batches_tracked))
