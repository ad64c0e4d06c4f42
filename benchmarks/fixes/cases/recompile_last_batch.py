"""Training whose last batch of an epoch is smaller than the others.

Reported: Lightning-AI/litgpt#794
Right: drop_last=True, or mark the batch dimension dynamic before the first call.
Harm: A loss over padded samples, or samples that are left out without a word.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.body(x))


def make_loader(count=27, batch_size=8):
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(
        torch.randn(count, 5, generator=generator),
        torch.randint(0, 3, (count,), generator=generator),
    )
    return DataLoader(data, batch_size=batch_size, shuffle=False)


def train(model, loader, epochs=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    losses = []
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: {sum(losses[-4:]) / 4:.4f}")
    return losses


torch.manual_seed(0)
net = Net()
losses = train(torch.compile(net, backend="aot_eager"), make_loader())
result = [losses, net.head.weight.grad]
