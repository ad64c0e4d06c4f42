"""Benchmark results for tests of pages, given to a store as the harness gives them: as events.

`bench_suite` has the figures that upstream's harness gave on an H200 (torch 2.11, float32,
inference, without CUDA
graphs), and beside them one model of every other status.
"""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from compileboard.collectors.contract.events import (
    BenchMeasured,
    CompileStarted,
    Event,
    GraphBroke,
    GuardFailure,
    ProcessStarted,
    Recompiled,
    RunEnded,
    RunStarted,
)
from compileboard.collectors.contract.fingerprints import cause_fingerprint, content_id, format_id
from compileboard.collectors.store.ingest.ingestor import Ingestor
from tests.unit.app.seed import START_US

DAY_US = 86_400_000_000
RUNS = ("01JBENCH0000000000000000A1", "01JBENCH0000000000000000A2", "01JBENCH0000000000000000A3")
HOSTILE = "</script><b onclick=x>&'\""
COMMAND = (
    "compileboard-collect bench --only path:bench_models.py,class:{} --performance --inference "
    "--float32"
)
TRACEBACK = """Traceback (most recent call last):
  File "bench_models.py", line 61, in forward
    return x @ self.weight.t()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 GiB."""

# Of list_break, as addresses have them.
BREAK_ID = format_id(content_id("break", "print-in-forward"))
CAUSE_ID = format_id(
    content_id("cause", cause_fingerprint("size-x", "bench_models.py", "Breaky.forward"))
)
FUNCTION_ID = format_id(content_id("function", "bench_models.py", "Breaky.forward"))

MLP = BenchMeasured(
    process_id="bench",
    sequence=1,
    time_us=START_US,
    suite="builtin",
    model="mlp",
    experiment="performance",
    mode="inference",
    dtype="float32",
    device="cpu",
    hardware="AMD EPYC 9654",
    backend="inductor",
    batch_size=8,
    values={
        "speedup": 1.25,
        "speedup_low": 1.21,
        "speedup_high": 1.29,
        "abs_latency": 3.2,
        "eager_latency": 4.0,
    },
    repeats={"eager": [4.0, 4.1, 3.9], "compiled": [3.2, 3.1, 3.3]},
    task="mlp-performance",
    command="compileboard-collect bench --only mlp --performance --inference",
)
ACCURACY: dict[str, Any] = {
    "experiment": "accuracy",
    "values": {
        "graph_breaks": 0.0,
        "calls_captured": 7.0,
        "unique_graphs": 1.0,
        "compilation_latency": 9.5,
    },
    "repeats": {},
    "accuracy": "pass",
    "task": "mlp-accuracy",
}
# Model, speedups of three runs, compiled ms, compile s, peak GB eager and compiled, ops, graphs,
# breaks.
_MEASURED = (
    ("Resnet18", (1.058, 1.053, 1.061), 1.921, 8.204, 0.412, 0.398, 69, 1, 0),
    ("MobileNetV3", (0.988, 1.046, 1.004), 3.377, 14.92, 0.233, 0.241, 157, 1, 0),
    ("Bert4", (1.773, 1.768, 1.756), 1.409, 12.19, 0.804, 0.840, 120, 1, 0),
    ("GPT2x4", (1.563, 1.582, 1.571), 2.204, 13.85, 1.326, 1.198, 131, 1, 0),
    ("Breaky", (0.572, 0.569, 0.587), 0.410, 2.473, 0.036, 0.099, 8, 5, 4),
)
_OTHERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("WrongAnswer", {"status": "failed", "reason": "fail_to_run"}),
    (
        "Hungry",
        {
            "status": "failed",
            "reason": "OOM",
            "message": "CUDA out of memory.",
            "traceback": TRACEBACK,
        },
    ),
    ("Sleeper", {"status": "failed", "reason": "timeout"}),
    ("Detector", {"status": "skipped", "reason": "needs torchvision, which is not installed"}),
    ("Last", {"status": "not_run", "reason": "the run was interrupted"}),
    (HOSTILE, {"values": {"speedup": 1.0}, "facts": {"note": HOSTILE}}),
)


def measure(**changes: Any) -> BenchMeasured:
    """Make a result of the small MLP with some of it changed."""
    return replace(MLP, **changes)


def add_results(
    store: sqlite3.Connection, run_id: str, *events: BenchMeasured, started_us: int = START_US
) -> None:
    """Record a benchmark run with its results; each result's task is a process of its own."""
    bench = f"{run_id}/bench"
    began = RunStarted(
        bench,
        0,
        started_us,
        run_id=run_id,
        name="bench",
        source="bench",
        suite=events[0].suite,
        argv=["python", "-m", "compileboard.collectors", "bench"],
        git={
            "commit": hashlib.sha256(run_id.encode()).hexdigest()[:40],
            "branch": "main",
            "subject": "Fuse the two norms",
            "dirty": False,
        },
        gpus=[{"name": "NVIDIA H200"}],
    )
    tasks = [
        ProcessStarted(
            f"{run_id}/{event.task}",
            0,
            started_us,
            run_id=run_id,
            pid=n,
            task=event.task,
            torch_version="2.11.0",
        )
        for n, event in enumerate(events, 1)
        if event.task
    ]
    results = [
        replace(event, process_id=bench, sequence=n, time_us=started_us + n * 1_000_000)
        for n, event in enumerate(events, 1)
    ]
    ended = RunEnded(
        bench,
        len(events) + 1,
        started_us + 60_000_000,
        run_id=run_id,
        state="finished",
        exit_code=0,
    )
    Ingestor(store).ingest(run_id, [began, *tasks, *results, ended], now_us=started_us)


def list_suite(number: int) -> list[BenchMeasured]:
    """Make the results of one run of the suite; `number` is 0, 1 or 2."""
    results: list[BenchMeasured] = []
    for (
        model,
        speedups,
        latency,
        compiling,
        eager_gb,
        compiled_gb,
        ops,
        graphs,
        breaks,
    ) in _MEASURED:
        speedup = speedups[number]
        counts = {
            "calls_captured": ops,
            "unique_graphs": graphs,
            "graph_breaks": breaks,
            "recompiles": breaks // 4,
        }
        values = {
            "speedup": speedup,
            "speedup_low": speedup * 0.985,
            "speedup_high": speedup * 1.015,
            "abs_latency": latency,
            "eager_latency": latency * speedup,
            "compilation_latency": compiling,
            "warm_compilation_latency": compiling / 6,
            "eager_peak_mem": eager_gb,
            "dynamo_peak_mem": compiled_gb,
            "compression_ratio": eager_gb / compiled_gb,
            "pct_ops": 98.5,
        }
        repeats = {
            "eager": _repeat(latency * speedup, model),
            "compiled": _repeat(latency, model + "c"),
        }
        performed = _of(model, values={**values, **counts}, repeats=repeats, facts={"noise": 0.012})
        judged = {
            "experiment": "accuracy",
            "accuracy": "pass",
            "repeats": {},
            "task": f"{model}-accuracy",
        }
        results += [
            performed,
            replace(performed, **judged, values={k: float(v) for k, v in counts.items()}),
        ]
    for model, changes in _OTHERS:
        results.append(_of(model, **({"values": {}, "repeats": {}} | changes)))
    wrong = {
        "experiment": "accuracy",
        "accuracy": "fail_accuracy",
        "status": "measured",
        "reason": None,
    }
    return [*results, replace(results[-6], **wrong)]


def _of(model: str, **changes: Any) -> BenchMeasured:
    of_model = {
        "suite": "bench_models",
        "model": model,
        "device": "cuda",
        "hardware": "NVIDIA H200",
    }
    return measure(
        **of_model, task=f"{model}-performance", command=COMMAND.format(model), **changes
    )


def _repeat(median_ms: float, seed: str) -> list[float]:
    chance = random.Random(seed)  # the same numbers each time
    return [round(median_ms * chance.lognormvariate(0.0, 0.012), 5) for _ in range(50)]


def bench_suite(store: sqlite3.Connection, runs: Sequence[str] = RUNS) -> None:
    """Record the suite, a day after another; in each run Breaky breaks twice and is compiled
    again.
    """
    for number, run_id in enumerate(runs):
        started_us = START_US + number * DAY_US
        add_results(store, run_id, *list_suite(number), started_us=started_us)
        Ingestor(store).ingest(
            run_id, list_break(f"{run_id}/Breaky-performance", started_us), now_us=started_us
        )


def list_break(process_id: str, at_us: int) -> list[Event]:
    """Make what a process tells of a model that breaks twice and is compiled again."""
    frame: dict[str, Any] = {
        "compile_id": "0/0",
        "frame_id": 0,
        "frame_compile_id": 0,
        "attempt": 0,
    }
    again = frame | {"compile_id": "0/1", "frame_compile_id": 1}
    where: dict[str, Any] = {"function": "Breaky.forward", "file": "bench_models.py", "line": 27}
    broke: dict[str, Any] = {
        "gb_id": "GB0059",
        "gb_type": "Failed to trace builtin operator",
        "reason": "Dynamo does not know how to trace builtin operator `print`",
        "explanation": (
            "Dynamo does not know how to trace builtin operator `print` with argument types "
            "['str', 'Size']"
        ),
        "hints": ["Avoid calling builtin `print`."],
        "source_line": 'print("shape", x.shape)',
        "fingerprint": "print-in-forward",
        "outcome": "resumed",
    }
    failed = GuardFailure(
        "0/0",
        "tensor 'x' size mismatch at index 0. expected 8, actual 4",
        "tensor_size",
        "x",
        "8",
        "4",
        fingerprint="size-x",
    )
    return [
        CompileStarted(process_id, 1, at_us + 1, **frame, **where),
        GraphBroke(process_id, 2, at_us + 2, **frame, **where, **broke),
        GraphBroke(process_id, 3, at_us + 3, **frame, **where, **broke),
        CompileStarted(process_id, 4, at_us + 4, **again, **where),
        Recompiled(
            process_id,
            5,
            at_us + 5,
            **again,
            recompiled_from="0/0",
            guards=[failed],
            text="size mismatch",
        ),
    ]
