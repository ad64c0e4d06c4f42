# advised first: cache-in-caller
import torch

tables = {}


@torch.compile
def rotate(x, positions):
    key = positions.data_ptr()
    if key not in tables:
        tables[key] = torch.cos(positions)
    return x * tables[key]


positions = torch.arange(4.0)
result = [rotate(torch.ones(4) * k, positions) for k in range(3)]
