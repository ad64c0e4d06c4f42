"""Upstream flags that are not options of `bench`: those without effect, and those refused.

Source: parse_args of upstream's benchmarks/dynamo/common.py; tests/data/upstream/flags.json lists
its flags.
"""

from __future__ import annotations

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
