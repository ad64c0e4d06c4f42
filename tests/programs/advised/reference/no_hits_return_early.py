# advised first: shape_in_caller
import torch


@torch.compile
def pick(scores):
    m = scores > 0.5
    keep = m.nonzero()
    if keep.numel() == 0:
        return scores.sum() * 0
    return scores[keep[:, 0]].sum()


result = [pick(torch.tensor([0.1, 0.9, 0.7])), pick(torch.tensor([0.1, 0.2, 0.3]))]
