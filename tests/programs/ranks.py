"""Two ranks of one job: a compiled step with collectives of its own, and a step at which rank 1
sees another length.

torchrun --nproc-per-node 2 tests/programs/ranks.py
"""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn

CUDA = torch.cuda.is_available() and torch.cuda.device_count() > 1


@torch.compile(dynamic=False)
def gathered(x):
    total = funcol.all_reduce(x.sin(), "sum", dist.group.WORLD)
    everyone = funcol.all_gather_tensor(total.cos(), 0, dist.group.WORLD)
    return everyone.sum(0)


class Step(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


def main():
    dist.init_process_group("nccl" if CUDA else "gloo")
    rank = dist.get_rank()
    device = f"cuda:{rank}" if CUDA else "cpu"
    if CUDA:
        torch.cuda.set_device(rank)
    model = torch.compile(nn.parallel.DistributedDataParallel(Step().to(device)))
    for step in range(5):
        length = 48 if rank == 1 and step == 3 else 32
        model(torch.randn(4, length, 64, device=device)).square().mean().backward()
    for _ in range(3):
        gathered(torch.randn(8, 16, device=device))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
