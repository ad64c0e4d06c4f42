"""Failures of compiled code planted on a CUDA device, beside those of planted.py.

    python planted_cuda.py            list them
    python planted_cuda.py NAME       run one as a plain program

`install(NAME)` plants the bug alone, for a process that runs a captured repro.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor


def _plant_relu(kind: str) -> Callable[[], None]:
    def plant() -> None:
        torch._inductor.config.triton.inject_relu_bug_TESTING_ONLY = kind
        torch._inductor.config.fx_graph_cache = False
        torch._functorch.config.enable_autograd_cache = False

    return plant


def _unchecked_indices() -> None:
    """Leave out inductor's check of indices, so that one out of bounds reads memory that is
    nobody's.
    """
    torch._inductor.config.assert_indirect_indexing = False
    torch._inductor.config.fx_graph_cache = False


# What each plants, whether CUDA graphs are on, and whether it gathers out of bounds.
PLANTED: dict[str, tuple[Callable[[], None], str | None, bool]] = {
    "relu_compile_error": (_plant_relu("compile_error"), None, False),
    "relu_runtime_error": (_plant_relu("runtime_error"), None, False),
    "relu_accuracy": (_plant_relu("accuracy"), None, False),
    "relu_accuracy_cudagraphs": (_plant_relu("accuracy"), "reduce-overhead", False),
    "illegal_memory_access": (_unchecked_indices, None, True),
    "illegal_memory_access_cudagraphs": (_unchecked_indices, "reduce-overhead", True),
}


def install(name: str) -> None:
    PLANTED[name][0]()


def program(x: Tensor, w: Tensor, index: Tensor) -> Tensor:
    h = torch.relu(torch.sin(x) @ w + 0.5)
    h = h / (h.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    return torch.cos(h)[index].sum(dim=-1)


def main() -> None:
    if len(sys.argv) < 2:
        print("\n".join(PLANTED))
        return
    plant, mode, is_out_of_bounds = PLANTED[sys.argv[1]]
    plant()
    generator = torch.Generator("cuda").manual_seed(7)
    x, w = (torch.randn(size, device="cuda", generator=generator) for size in ((64, 32), (32, 32)))
    index = torch.tensor([0, 1 << 40 if is_out_of_bounds else 5], device="cuda")
    compiled = torch.compile(program, mode=mode)
    for _ in range(3):
        result = compiled(x, w, index)
    error = float("nan") if is_out_of_bounds else float((result - program(x, w, index)).abs().max())
    torch.cuda.synchronize()
    print(f"{sys.argv[1]}: largest difference from eager {error:.4g}")


if __name__ == "__main__":
    main()
