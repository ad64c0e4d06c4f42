# advised first: block_in_caller
import threading

import torch

lock, seen = threading.Lock(), {}


@torch.compile
def forward(x, n):
    y = x.sin()
    with lock:
        seen[n] = seen.get(n, 0) + 1
    return y * 2


result = [forward(torch.ones(4), name) for name in ("a", "a", "a", "a")] + [seen]
