import torch

tables = {}


@torch.compile
def rotate(x, table):
    return x * table


def find_table(positions):
    key = positions.data_ptr()
    if key not in tables:
        tables[key] = torch.cos(positions)
    return tables[key]


positions = torch.arange(4.0)
result = [rotate(torch.ones(4) * k, find_table(positions)) for k in range(3)]
