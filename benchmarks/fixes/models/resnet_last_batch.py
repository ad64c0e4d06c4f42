"""Training torchvision's ResNet; the last batch of an epoch is smaller.

Right: drop_last=True, or the batch dimension marked dynamic before the user's call.
Place: loss = criterion(model(images), targets)
Names: x | images | batch
"""

import torch
import torchvision
from torch.utils.data import DataLoader, TensorDataset


def make_loader():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(10, 3, 32, 32, generator=generator)
    return DataLoader(TensorDataset(images, torch.arange(10) % 4), batch_size=4)


def train(model, loader, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()
    losses = []
    for epoch in range(epochs):
        for images, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


torch.manual_seed(0)
net = torchvision.models.resnet18(weights=None, num_classes=4)
result = train(torch.compile(net, backend="aot_eager"), make_loader(), epochs=2)
