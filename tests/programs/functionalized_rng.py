"""Dropout with functionalised random numbers, also recomputed by a backward; needs CUDA.

TORCH_TRACE=FOLDER python tests/programs/functionalized_rng.py
"""

import torch
import torch._functorch.config as functorch_config
from torch.utils.checkpoint import checkpoint


def step(x):
    return torch.nn.functional.dropout(x.sin(), 0.5).cos()


def recomputed(x):
    return checkpoint(step, x, use_reentrant=False)


def main():
    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    with functorch_config.patch(functionalize_rng_ops=True):
        torch.compile(step)(x).sum().backward()
    torch._dynamo.reset()
    torch.compile(recomputed)(x).sum().backward()
    print(float(x.grad.sum()))


if __name__ == "__main__":
    main()
