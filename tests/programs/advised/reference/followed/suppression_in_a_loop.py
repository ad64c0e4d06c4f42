import torch


@torch.compile
def rank(scores):
    return scores.argsort(descending=True)


def suppress(boxes, scores):
    order = rank(scores)
    kept = []
    while order.numel() > 0:
        best = order[0].item()
        kept.append(best)
        rest = order[1:]
        overlap = (boxes[rest] - boxes[best]).abs().sum(-1)
        order = rest[overlap > 1.0]
    return torch.tensor(kept)


boxes = torch.tensor([[0.0, 0, 1, 1], [0.1, 0, 1, 1], [3, 3, 4, 4], [3, 3.2, 4, 4]])
result = suppress(boxes, torch.tensor([0.9, 0.8, 0.7, 0.95]))
