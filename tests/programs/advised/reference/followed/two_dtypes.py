import torch


@torch.compile
def project(x, w):
    return (x @ w).relu()


result = []
for dtype in (torch.float32, torch.float64, torch.float32):
    x, w = torch.ones(2, 3, dtype=dtype), torch.ones(3, 2, dtype=dtype)
    result.append(project(x.double(), w.double()))
