"""A list of tensors has another length each time."""

import sys

import torch

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "inductor"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def mean_of_all(tensors):
    return tensors.mean(0)


torch.manual_seed(1)
mean = torch.compile(mean_of_all, backend=BACKEND)
for count in [2, 3, 4, 5] * 4:
    tensors = torch.stack([torch.full((64,), float(n), device=DEVICE) for n in range(count)])
    torch._dynamo.maybe_mark_dynamic(tensors, 0)
    y = mean(tensors)
print("mean", round(y.mean().item(), 4))
