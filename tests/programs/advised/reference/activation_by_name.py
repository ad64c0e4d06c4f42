# advised first: value-variants
import torch


@torch.compile
def activate(x, kind):
    if kind == "relu":
        return x.relu()
    if kind == "tanh":
        return x.tanh()
    return x.sigmoid()


result = [activate(torch.ones(4), kind) for kind in ("relu", "tanh", "sigmoid", "relu")]
