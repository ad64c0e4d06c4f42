"""A run with repros as torch and the hooks leave them, with inputs' values and results."""

from __future__ import annotations

import base64
import hashlib
import sqlite3
import tarfile
import zlib
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.events import (
    CompileFailed,
    CompileStarted,
    Event,
    ProcessStarted,
    ReproCaptured,
    ReproValues,
    RunEnded,
    RunStarted,
    RuntimeFailed,
)
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.ingest.repro_writer import repro_id
from compileboard.collectors.store.repros import ReproResult, save_result

RUN = "01REPR0000000000000000000"
START_US = 1_795_000_000_000_000
LEFT_BY_TORCH = (
    Path(__file__).parents[3] / "data" / "repros" / "torch_compile_debug.tar.xz"
)  # with 2.13, on a CPU


def read_launcher(level: str) -> str:
    """Return the script that torch's minifier left of a graph of that level."""
    with tarfile.open(LEFT_BY_TORCH) as archive:
        (name,) = (
            name
            for name in archive.getnames()
            if name.startswith(level) and name.endswith("launcher.py")
        )
        file = archive.extractfile(name)
        assert file is not None
        return file.read().decode()


PROGRAM = read_launcher("aot")
VALUES = bytes(range(256)) * 2
DIGEST = hashlib.sha256(VALUES).hexdigest()
INPUTS = [
    {
        "name": "arg0_1",
        "dtype": "float32",
        "shape": [16, 8],
        "stride": [8, 1],
        "device": "cpu",
        "storage": 0,
    }
    | {
        "storage_bytes": 512,
        "values": "kept",
        "digest": DIGEST,
        "is_parameter": True,
        "requires_grad": True,
    },
    {
        "name": "arg1_1",
        "dtype": "float32",
        "shape": [16],
        "stride": [1],
        "device": "cpu",
        "storage": 1,
    }
    | {"storage_bytes": 64, "values": "freed"},
    {"name": "arg2_1", "kind": "symint", "expression": "s77", "value": 5},
    {
        "name": "arg3_1",
        "dtype": "float32",
        "shape": ["s77", 8],
        "stride": [8, 1],
        "device": "cpu",
        "storage": 2,
    }
    | {"storage_bytes": 160, "storage_offset": 4},
]
MANIFEST: dict[str, Any] = {
    "format": 1,
    "kind": "compile",
    "level": "aot",
    "phase": "inference",
    "error_type": "CppCompileError",
    "message": "C++ compile error\n\nCommand:\ng++ main.cpp\n",
    "operation": "aten.relu.default",
    "node_count": 5,
    "traceback": (
        'Traceback (most recent call last):\n  File "train.py", line 9, in step\nCppCompileError'
    ),
    "function": "Tower.forward",
    "file": "train.py",
    "line": 9,
    "backend": "inductor",
    "device": "cpu",
    "versions": {"torch": "2.13.0", "python": "3.11.9", "cuda": None},
    "inputs": INPUTS,
    "symbols": {"s77": 5},
    "settings": {"inductor": {"max_autotune": "True"}},
    "preload": ["train"],
}
WRONG: dict[str, Any] = {
    **MANIFEST,
    "kind": "accuracy",
    "error_type": "AccuracyError",
    "message": "bad accuracy 0.01",
    "phase": "forward",
    "operation": "aten.atan.default",
    "accuracy": {
        "error": "0.01",
        "eager_error": "2.7e-08",
        "limit": "0.001",
        "wrong": ["output 0", "input 1"],
    },
}
MINIMAL = (
    "class Repro(torch.nn.Module):\n    def forward(self, x):\n        return "
    "(torch.ops.aten.atan.default(x),)\n"
)
FRAME: dict[str, Any] = {"compile_id": "0/0", "frame_id": 0, "frame_compile_id": 0}
COMPILE_REPRO, ACCURACY_REPRO = (
    format_id(repro_id("repro-process", position)) for position in (0, 1)
)


def list_events() -> list[Event]:
    """Return the events of a run whose compile failed and whose result was wrong."""
    told: list[tuple[type[Event], dict[str, Any]]] = [
        (
            ProcessStarted,
            {"run_id": RUN, "pid": 7, "torch_version": "2.13.0", "python_version": "3.11.9"},
        ),
        (CompileStarted, FRAME | {"function": "Tower.forward", "file": "train.py", "line": 9}),
        (
            ReproCaptured,
            FRAME
            | {"position": 0, "manifest": MANIFEST, "program": PROGRAM, "dynamo_program": PROGRAM},
        ),
        (
            CompileFailed,
            FRAME
            | {"error_type": "CppCompileError", "message": "C++ compile error", "text": "text"},
        ),
        (
            ReproValues,
            {
                "position": 0,
                "digest": DIGEST,
                "body": base64.b64encode(zlib.compress(VALUES)).decode(),
            },
        ),
        (
            ReproCaptured,
            {"position": 1, "manifest": WRONG, "program": PROGRAM, "failure_position": 0},
        ),
        (
            RuntimeFailed,
            {
                "position": 0,
                "phase": "forward",
                "error_type": "AccuracyError",
                "message": "bad accuracy",
            },
        ),
    ]
    events: list[Event] = [
        kind("repro-process", number, START_US + number, **fields)
        for number, (kind, fields) in enumerate(told)
    ]
    started = RunStarted(
        "repro-run", 0, START_US, run_id=RUN, name="train.py", argv=["python", "train.py"]
    )
    return [
        started,
        *events,
        RunEnded("repro-run", 1, START_US + 9_000_000, run_id=RUN, state="failed", exit_code=1),
    ]


ROWS = [
    {
        "node": "atan",
        "operation": "aten.atan.default",
        "verdict": "wrong",
        "error": 1e-2,
        "eager_error": 2.7e-8,
    }
    | {"dtype": "float32", "shape": [8, 8], "explains": True},
    {
        "node": "mul",
        "operation": "aten.mul.Tensor",
        "error": 2e-8,
        "eager_error": 2e-8,
        "dtype": "float32",
    },
]
RESULTS = [
    ReproResult(
        "run", "same", 3.2, START_US + 1, START_US + 2, torch_version="2.13.0", device="cpu"
    ),
    ReproResult(
        *(
            "minify",
            "minified",
            13.1,
            START_US + 3,
            START_US + 4,
            "aten.atan.default",
            1,
            "2.13.0",
            "cpu",
        ),
        detail={"trial_count": 6},
        program=MINIMAL,
    ),
    ReproResult(
        *(
            "analyze",
            "named",
            4.0,
            START_US + 5,
            START_US + 6,
            "aten.atan.default",
            None,
            "2.13.0",
            "cpu",
        ),
        detail={
            "status": "named",
            "operation": "aten.atan.default",
            "judged_count": 2,
            "rows": ROWS,
        },
    ),
    ReproResult(
        *(
            "bisect",
            "named",
            19.0,
            START_US + 7,
            START_US + 8,
            "aten.atan.default",
            None,
            "2.13.0",
            "cpu",
        ),
        detail={
            "status": "named",
            "backend": "inductor",
            "subsystem": "lowerings",
            "trial_count": 19,
            "operation": "aten.atan.default",
            "application": "atan",
            "notes": ["a note"],
            "settings": [{"setting": "epilogue_fusion", "value": "False", "passes": False}],
        },
    ),
]


def capture_repros(store: sqlite3.Connection) -> None:
    """Record the run, and what was found out about its second repro."""
    Ingestor(store).ingest(RUN, list_events())
    for result in RESULTS:
        save_result(store, ACCURACY_REPRO, result)
