"""Training with an evaluation after each epoch: train mode with gradients, eval mode without.

Reported: pytorch/pytorch#110803
Right: Nothing to fix: two modes are two graphs, and neither compiles again in later epochs.
Harm: Evaluating in training mode or with gradients, or training in eval mode.
"""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 12), nn.Linear(12, 2)
        self.norm, self.dropout = nn.BatchNorm1d(12), nn.Dropout(0.2)

    def forward(self, x):
        return self.fc2(self.dropout(torch.relu(self.norm(self.fc1(x)))))


def train_one_epoch(model, optimizer, batches):
    model.train()
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    correct = sum((model(x).argmax(-1) == y).sum() for x, y in batches)
    return int(correct)


torch.manual_seed(0)
net = Net()
model = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
batches = [(torch.randn(8, 6), torch.randint(0, 2, (8,))) for _ in range(2)]
accuracies = []
for epoch in range(3):
    train_one_epoch(model, optimizer, batches)
    accuracies.append(evaluate(model, batches))
print(accuracies)
result = [accuracies, net.fc1.weight.detach().clone()]
