"""Fail on a GPU in planned ways, one after the other: `python -m benchmarks.repro.gpu_failures [NAME …]`.

Torch's own planted errors of relu in triton (`compile_error`, `runtime_error`, `accuracy`), the last also under CUDA
graphs (`cudagraphs`), and an index out of bounds (`illegal`), after which CUDA works no more in this process. Run it
under `run --repro accuracy --repro crash --repro-inputs` to see what is captured.
"""

from __future__ import annotations

import sys

import torch
import torch._inductor.config as inductor_config

RELU = {"compile_error": "compile_error", "runtime_error": "runtime_error", "accuracy": "accuracy"}
RELU |= {"cudagraphs": "accuracy"}
NAMES = (*RELU, "illegal")


def body(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Compute about ten operations, a relu among them."""
    h = torch.addmm(w[0], x, w)
    h = torch.relu(h - h.mean(dim=-1, keepdim=True))
    return (h.sin() + h.cos() * 0.5).sum(dim=-1)


def pick(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Read rows that may not be there."""
    return (x.sin()[index] * 2).sum(dim=-1)


def fail(name: str) -> None:
    """Run one of the failures."""
    torch._dynamo.reset()
    x, w = torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda")
    if name == "illegal":
        torch.compile(pick)(x, torch.full((64,), 1 << 28, device="cuda"))
        torch.cuda.synchronize()
        return
    settings = {"triton.inject_relu_bug_TESTING_ONLY": RELU[name], "force_disable_caches": True}
    with inductor_config.patch({**settings, "triton.cudagraphs": name == "cudagraphs"}):
        compiled = torch.compile(body)
        for _ in range(3):  # CUDA graphs are recorded at the second call
            compiled(x, w)
        torch.cuda.synchronize()


def main(names: list[str]) -> int:
    """Run the failures that are named, all without names."""
    for name in names or NAMES:
        try:
            fail(name)
            print(f"{name}: nothing raised")
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
