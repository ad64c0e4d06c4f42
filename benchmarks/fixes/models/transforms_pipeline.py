"""Augmentation with torchvision's transforms inside the compiled training loss.

Right: The transform's random draw is not for a graph: augment in the caller, before the compiled
loss.
Place: images = augment(images)
Names: in the caller | before the compiled
"""

import torch
import torchvision
from torchvision.transforms import v2

augment = v2.Compose([v2.RandomHorizontalFlip(), v2.Normalize([0.5] * 3, [0.25] * 3)])


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self.loss = torch.compile(self._loss, backend="aot_eager")

    def _loss(self, images, targets):
        images = augment(images)
        return torch.nn.functional.cross_entropy(self.model(images), targets)

    def step(self, images, targets):
        loss = self.loss(images, targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


torch.manual_seed(0)
trainer = Trainer(torchvision.models.squeezenet1_1(weights=None, num_classes=4))
images = torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))
result = [trainer.step(images, torch.arange(4)) for _ in range(3)]
