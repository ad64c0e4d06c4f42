"""A step that is handed the whole batch, of which it does not use the ragged part.

Reported: pytorch/pytorch#131893
Right: Leave out what is not used, or mark its size dynamic.
Harm: A part of the batch that is cut or padded.
"""

import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.body, self.scores = nn.Linear(size, 8), nn.Linear(8, 3)

    def forward(self, images, boxes):
        if boxes.dim() != 2:
            raise ValueError("boxes have two dimensions")
        return self.scores(torch.relu(self.body(images)))


class Evaluator:
    def __init__(self, model):
        self.model = torch.compile(model.eval(), backend="eager")
        self.found = []

    @torch.no_grad()
    def add(self, images, boxes):
        classes = self.model(images, boxes).argmax(-1)
        self.found.append((classes, boxes.shape[0]))


torch.manual_seed(0)
evaluator = Evaluator(Detector())
for seed, count in enumerate((7, 4, 9, 5)):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(3, 6, generator=generator)
    evaluator.add(images, torch.rand(count, 4, generator=generator))
result = evaluator.found
