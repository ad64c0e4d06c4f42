"""Soft NMS of a detector: a loop per class that takes the best box and lowers the others.

Reported: MrParosk/soft_nms#14
Right: Leave the loop out of the compiled function (torch.compiler.disable on it), or the offset
trick of batched NMS.
Harm: Other boxes kept, or another order.
"""

import torch


def box_iou(box, boxes):
    top_left = torch.maximum(box[:2], boxes[:, :2])
    bottom_right = torch.minimum(box[2:], boxes[:, 2:])
    inter = (bottom_right - top_left).clamp(min=0).prod(-1)
    area = (box[2:] - box[:2]).prod()
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    return inter / (area + areas - inter)


def soft_nms(boxes, scores, sigma=0.5, threshold=0.2):
    scores = scores.clone()
    kept = []
    while scores.numel() and scores.max() > threshold:
        best = scores.argmax().item()
        kept.append(best)
        decay = torch.exp(-box_iou(boxes[best], boxes).square() / sigma)
        scores = scores * decay
        scores[best] = -1.0
    return torch.tensor(kept, dtype=torch.long)


@torch.compile(backend="eager")
def postprocess(logits, boxes):
    scores, classes = logits.softmax(-1).max(-1)
    results = []
    for c in torch.unique(classes):
        index = torch.where(classes == c)[0]
        kept = soft_nms(boxes[index], scores[index])
        results.append(index[kept])
    keep = torch.cat(results)
    return boxes[keep], scores[keep], classes[keep]


result = []
for seed in range(2):
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(12, 2, generator=generator) * 4
    boxes = torch.cat([corner, corner + 1 + torch.rand(12, 2, generator=generator)], 1)
    result.append(postprocess(torch.randn(12, 3, generator=generator) * 2, boxes))
