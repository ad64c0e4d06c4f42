"""A detector's head that suppresses overlapping boxes class by class, over the classes it finds.

Reported: pytorch/pytorch#121036
Right: All classes in one pass (boxes offset by class, or a same-class mask), or the loop in the
caller.
Harm: Boxes suppressed by another class's box, or detections in another order.
"""

import torch
from torch import nn


def box_iou(a, b):
    low = torch.maximum(a[:, None, :2], b[None, :, :2])
    high = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = (high - low).clamp(min=0).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (a, b)]
    return inter / (areas[0][:, None] + areas[1][None] - inter)


def fast_nms(boxes, scores, threshold):
    order = scores.argsort(descending=True)
    overlap = box_iou(boxes[order], boxes[order]).triu(diagonal=1)
    return order[overlap.amax(0) <= threshold]


def batched_nms(boxes, scores, labels, threshold):
    keep = torch.zeros_like(scores, dtype=torch.bool)
    for class_id in torch.unique(labels):
        indices = torch.where(labels == class_id)[0]
        keep[indices[fast_nms(boxes[indices], scores[indices], threshold)]] = True
    kept = torch.where(keep)[0]
    return kept[scores[kept].argsort(descending=True)]


class DetectionHead(nn.Module):
    def __init__(self, size=8, classes=5):
        super().__init__()
        self.boxes, self.classes = nn.Linear(size, 4), nn.Linear(size, classes)

    def forward(self, features):
        center, extent = self.boxes(features).sigmoid().chunk(2, dim=-1)
        boxes = torch.cat([center - extent, center + extent], dim=-1)
        scores, labels = self.classes(features).softmax(-1).max(-1)
        kept = batched_nms(boxes, scores, labels, 0.4)
        return boxes[kept], scores[kept], labels[kept]


torch.manual_seed(0)
head = torch.compile(DetectionHead().eval(), backend="eager")
with torch.no_grad():
    result = [head(torch.randn(12, 8) * scale) for scale in (1.0, 3.0)]
for boxes, scores, labels in result:
    print(round(boxes.sum().item(), 5), round(scores.sum().item(), 5), labels.tolist())
