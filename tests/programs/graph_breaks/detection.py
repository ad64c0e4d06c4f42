"""Boxes above a score, and the classes that they have."""

import torch


@torch.compile
def select(boxes, scores, classes):
    chosen = scores > 0.5
    boxes = boxes[chosen]
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    present, counts = torch.unique(classes[chosen], return_counts=True)
    return areas.sum(), present, counts


torch.manual_seed(0)
result = select(
    torch.rand(6, 4), torch.tensor([0.9, 0.1, 0.8, 0.4, 0.7, 0.6]), torch.tensor([1, 1, 2, 3, 2, 1])
)
