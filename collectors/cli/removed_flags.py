"""What upstream's harness offers and `bench` does not: a line that says so, and what replaced it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RemovedFlag:
    """Name a flag of upstream's, and say why it is not here."""

    flag: str
    reason: str


LATER = "is not measured yet; what there is: --help"
REMOVED = (
    *(
        RemovedFlag(flag, LATER)
        for flag in (
            "--export",
            "--export-aot-inductor",
            "--aot-precompile",
            "--xla",
            "--quantization",
            "--ddp",
            "--fsdp",
        )
    ),
    RemovedFlag(
        "--prims-nvfuser", "nvFuser was removed from torch; inductor generates fused kernels: --backend inductor"
    ),
    RemovedFlag("--nvfuser", "nvFuser was removed from torch; inductor generates fused kernels: --backend inductor"),
    RemovedFlag("--nnc", "NNC, TorchScript's fuser, is no dynamo backend any more; use --backend inductor"),
    RemovedFlag(
        "--speedup-fx2trt",
        "fx2trt was replaced by Torch-TensorRT: install torch_tensorrt, then --backend torch_tensorrt",
    ),
    RemovedFlag(
        "--speedup-fx2trt-fp16",
        "fx2trt was replaced by Torch-TensorRT: install torch_tensorrt, then --backend torch_tensorrt --float16",
    ),
    RemovedFlag(
        "--speedup-dynamo-ts", "the TorchScript backend is deprecated with TorchScript itself; use --backend inductor"
    ),
    RemovedFlag("--speedup-onnx", "the TorchScript ONNX exporter was replaced by torch.onnx.export(dynamo=True)"),
    RemovedFlag("--torchscript-onnx", "the TorchScript ONNX exporter was replaced by torch.onnx.export(dynamo=True)"),
    RemovedFlag("--torchscript-jit-trace", "torch.jit.trace is deprecated; torch.export and torch.compile replaced it"),
)


class RemovedFlagAction(argparse.Action):
    """End with the reason when the flag is given."""

    def __init__(self, *args: Any, reason: str, **words: Any) -> None:
        super().__init__(*args, **words)
        self.reason = reason

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Say it."""
        parser.error(
            f"{option_string} {self.reason}" if self.reason is LATER else f"{option_string} is not here: {self.reason}"
        )
