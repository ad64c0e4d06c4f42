"""Sequences of different lengths, packed into one tensor."""

import torch


@torch.compile
def pool(packed, lengths):
    parts = packed.split(lengths.tolist())
    means = torch.stack([part.mean(0) for part in parts])
    longest = int(lengths.max())
    positions = torch.arange(longest)
    return means, positions.sum()


torch.manual_seed(0)
result = pool(torch.randn(9, 4), torch.tensor([2, 3, 4]))
