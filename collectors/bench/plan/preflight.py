"""Checks of settings against the installed torch, run in a child process."""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from compileboard.collectors.bench.plan.settings import BenchSettings, load_settings
from compileboard.start import shared_command

# What torch 2.4 to 2.13 has: asking costs an import of torch.
KNOWN = frozenset(
    ("inductor", "eager", "aot_eager", "aot_eager_decomp_partition", "cudagraphs", "eager_noexcept")
)
ALWAYS_THERE = (
    None,
    "default",
    "reduce-overhead",
    "max-autotune",
    "max-autotune-no-cudagraphs",
)  # modes of any torch
ASK = "import json, torch._dynamo; print(json.dumps(torch._dynamo.list_backends(exclude_tags=())))"
ASK_TIMEOUT_S = 120.0


def _ask(command: Sequence[str]) -> Any:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
        return json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def check_backend(name: str) -> None:
    """Raises ValueError if torch lacks the backend. If torch cannot be asked, each model reports
    the error.
    """
    if name in KNOWN:
        return
    listed = list_backends()
    if listed and name not in listed:
        near = difflib.get_close_matches(name, listed, n=3) or [
            known for known in listed if "TESTING_ONLY" not in known
        ]
        raise ValueError(f"--backend {name}: torch has no such backend; it has {', '.join(near)}")


def list_backends() -> list[str]:
    names = _ask([sys.executable, "-c", ASK])
    return [str(name) for name in names] if isinstance(names, list) else []


def answer(dumped: str) -> None:
    from compileboard.collectors.bench.worker.torch_setup import check

    try:
        check(load_settings(dumped))
        error = None
    except ValueError as wrong:
        error = str(wrong)
    sys.stdout.write(json.dumps({"error": error}) + "\n")


def needs_asking(settings: BenchSettings) -> bool:
    return (
        settings.device == "cuda"
        or bool(settings.inductor_config)
        or settings.compile_mode not in ALWAYS_THERE
    )


@cache
def check_settings(settings: BenchSettings) -> None:
    if needs_asking(settings):
        reply = _ask(shared_command(f"{__name__}:answer", settings.dump()))
        if isinstance(reply, dict) and reply.get("error") is not None:
            raise ValueError(reply["error"])


_RECORDED = "recorded with every result"
TAKEN = {
    **{
        flag: f"is not needed: {reason}"
        for flag, reason in {
            "--fast": "upstream lists no model of these suites as slow",
            "--inductor-settings": "it changes nothing in upstream's harness either",
            "--multiprocess": "each rank of --ddp and --fsdp is a process of its own",
            "--print-compilation-time": f"compile time is {_RECORDED}",
            "--print-memory": f"peak memory is {_RECORDED}",
            "--progress": "progress is printed unless --quiet is given",
        }.items()
    },
    "--generate-aot-autograd-stats": "writes no _stats.csv here: the run's page has its AOT graphs",
    "--print-dataframe-summary": "prints no table of models here: --output FILE.csv writes it",
    "--stats": "prints no counters here: the run's page has them",
}

_NVFUSER = "nvFuser was removed from torch; inductor generates fused kernels: --backend inductor"
_FX2TRT = (
    "fx2trt was replaced by Torch-TensorRT: install torch_tensorrt, then --backend torch_tensorrt"
)
_ONNX = (
    "torch.onnx.export(dynamo=True) replaced the TorchScript exporter and "
    "torch.onnx.dynamo_export: --dynamo-onnx"
)
_AOT_ONNX = "inlining and optimizing are part of torch.onnx.export(dynamo=True): --dynamo-onnx"
_XLA = "torch_xla has no wheel for a torch newer than 2.9; --device cpu or cuda"
REFUSED = {
    flag: f"is not here: {reason}"
    for flag, reason in {
        "--prims-nvfuser": _NVFUSER,
        "--nvfuser": _NVFUSER,
        "--nnc": "NNC, TorchScript's fuser, is no dynamo backend any more; use --backend inductor",
        "--speedup-fx2trt": _FX2TRT,
        "--speedup-fx2trt-fp16": f"{_FX2TRT} --float16",
        "--speedup-dynamo-ts": (
            "the TorchScript backend is deprecated with TorchScript itself; use --backend inductor"
        ),
        "--torchscript-onnx": _ONNX,
        "--torch-onnx-patch": _ONNX,
        "--dynamo-onnx-aot-inline": _AOT_ONNX,
        "--dynamo-onnx-aot-optimize": _AOT_ONNX,
        "--xla": _XLA,
        "--trace-on-xla": _XLA,
        "--xla-tolerance": _XLA,
        "--print-fx": "torch prints the graphs itself: TORCH_LOGS=graph_code",
        "--print-aten-ops": "torch prints the graphs itself: TORCH_LOGS=aot_graphs",
        "--log-conv-args": "upstream's harness never used it; torch prints its kernels: TORCH_LOGS=output_code",
        # Older than the list of flags, and runner.py's.
        "--cpp-wrapper": "upstream removed it; --inductor-config cpp_wrapper=1",
        "--repro": "--minify keeps the minimal program of a model that fails or is wrong; "
        "compileboard-collect repro runs one again",
        "--compilers": (
            "it is runner.py's, which calls the harness once for each; --backend NAME measures one"
        ),
        # Newer than the list of flags.
        "--export-nativert": "nativert's runner cannot be made from Python; "
        "--export-aot-inductor runs "
        "an exported model",
        "--torchscript-jit-trace": "torch.jit.trace is deprecated; torch.export and torch.compile replaced it",
        "--optimus": "optimus is Meta's own set of fusion passes; --inductor-config sets inductor's",
        "--export-perfdoctor": "perf doctor is Meta's own; --export-profiler-trace writes a Chrome trace",
        "--retain-output": "files are written whole from the recorded run; give another --output-directory",
        "--unbacked-batch-only": "--dynamic-batch-only makes the batch dynamic, by a backed symbol",
        "--compare-backed-unbacked": "--dynamic-batch-only makes the batch dynamic, by a backed symbol",
        "--batch-invariant": "--accuracy compares with eager, at any --batch-size",
        "--save-model-outputs-to": "--diff-branch measures another commit beside this one",
        "--compare-model-outputs-with": "--diff-branch measures another commit beside this one",
    }.items()
}
SHORT = {"--fast": "-f"}
VALUED = frozenset(
    (
        "--xla-tolerance",
        "--optimus",
        "--save-model-outputs-to",
        "--compare-model-outputs-with",
        "--compilers",
    )
)
