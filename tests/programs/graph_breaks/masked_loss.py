"""A token loss over the labels that are not ignored."""

import torch
import torch.nn.functional as F

IGNORED = -100


@torch.compile
def token_loss(logits, labels):
    keep = labels != IGNORED
    kept_logits = logits[keep]
    kept_labels = labels[keep]
    loss = F.cross_entropy(kept_logits, kept_labels, reduction="sum")
    return loss / keep.sum()


torch.manual_seed(0)
result = token_loss(torch.randn(6, 5), torch.tensor([1, -100, 2, 0, -100, 4]))
