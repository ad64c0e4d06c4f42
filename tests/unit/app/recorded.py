"""A small run as events: a recompile, a graph break, a failure, caches, configuration."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from compileboard.collectors.contract.events import (
    CacheLookedUp,
    Compiled,
    CompileFailed,
    CompileStarted,
    ConfigSeen,
    CudagraphMade,
    CudagraphSkipped,
    Event,
    GraphBroke,
    GuardFailure,
    ProcessStarted,
    Recompiled,
    RunEnded,
    RunStarted,
    SnapshotTaken,
    StepsTimed,
    UnknownRecordSeen,
)
from compileboard.collectors.contract.fingerprints import (
    cause_fingerprint,
    content_id,
    fingerprint,
    format_id,
)
from compileboard.collectors.store.ingest.ingestor import Ingestor

BREAK_ID = format_id(content_id("break", "b1"))
CAUSE_ID = format_id(content_id("cause", cause_fingerprint("size-x", "model.py", "f")))
REASON_ID = format_id(
    content_id("rerecording", fingerprint("rerecording", "StaticInputIdxMismatch", "model.py", "f"))
)
RUN = "01J00000000000000000000001"
PROCESS = "a" * 32
START_US = 1_795_000_000_000_000
MARKUP = "<b onclick=x>&'\"</b>"
CHANGED = {
    "dynamo": {"recompile_limit": {"value": 2, "default": 8}},
    "inductor": {"fx_graph_cache": {"value": False}},
}
_PHASES = {
    "dynamo": 100_000,
    "aot": 50_000,
    "inductor": 30_000,
    "codegen": 0,
    "triton": 15_000,
    "cudagraph": 0,
}
_STEPS = {
    "graphs": [
        {
            "number": 0,
            "phase": "forward",
            "compile_id": "0/0",
            "input_bytes": 0,
            "shared_bytes": 0,
        }
    ],
    "steps": [
        {
            "compiled": False,
            "graph_numbers": [0],
            "host": {"call_us": [2.0, 30.0, 1.0], "after_us": None},
            "device": None,
        }
    ],
    "wanted_count": 1,
}
_MISMATCH = {
    "graph": 0,
    "status": "StaticInputIdxMismatch",
    "inputs": [{"name": MARKUP, "dtype": "torch.float32", "shape": [8], "stack": []}],
    "input_count": 1,
}


_INPUT = {"name": MARKUP, "dtype": "torch.float32", "shape": [4], "stack": []}
_STATUS = {"status": "StaticInputIdxMismatch"}
_MOVED = {"reasons": [{"graph": 1, "inputs": [_INPUT], "input_count": 1} | _STATUS]} | _STATUS


def _frame(number: int, again: int = 0) -> dict[str, Any]:
    return {
        "compile_id": f"{number}/{again}",
        "frame_id": number,
        "frame_compile_id": again,
        "attempt": 0,
    }


def _record(
    kind: str, function: str, duration_us: int = 200_000, outcome: str = "compiled", **more: Any
) -> dict[str, Any]:
    metrics = {
        "duration_us": duration_us,
        "guard_count": 12,
        "dynamo_config": {"config_hash": "a4797441f1dafbf1"},
    } | more
    return {
        "record_kind": kind,
        "function": function,
        "file": "model.py",
        "line": 3,
        "outcome": outcome,
        "start_us": START_US,
        "duration_us": duration_us,
        "phases_us": _PHASES | {"restart": 5_000},
        "metrics": metrics,
    }


def _guard(entry: str, actual: str) -> GuardFailure:
    reason = f"tensor 'x' size mismatch at index 0. expected 2, actual {actual}"
    return GuardFailure(
        entry,
        reason,
        "tensor_size",
        "x",
        "2",
        actual,
        fingerprint="size-x",
    )


def list_events(state: str = "finished") -> list[Event]:
    """Return the run: f compiles, breaks and is compiled again up to its limit; g fails."""
    told: list[tuple[type[Event], dict[str, Any]]] = [
        (
            ProcessStarted,
            {
                "run_id": RUN,
                "pid": 7,
                "rank": 0,
                "capabilities": {"metrics": "ok", "events": "no tap"},
            },
        ),
        (
            ConfigSeen,
            {
                "config_hash": "a4797441f1dafbf1",
                "config_kind": "dynamo",
                "body": '{"recompile_limit": 2, "verbose": false}',
            },
        ),
        (
            ConfigSeen,
            {
                "config_hash": "77f7156fe72cc1eb",
                "config_kind": "changed",
                "body": json.dumps(CHANGED),
            },
        ),
        (
            CompileStarted,
            _frame(0)
            | {
                "function": "f",
                "file": "model.py",
                "line": 3,
                "stack": [{"file": "train.py", "line": 9, "name": "main", "code": "f(x)"}],
            },
        ),
        (
            GraphBroke,
            _frame(0)
            | {
                "gb_id": "GB0059",
                "gb_type": "Builtin",
                "reason": f"Builtin {MARKUP}",
                "explanation": MARKUP,
                "hints": [f"Avoid {MARKUP}"],
                "function": "f",
                "file": "model.py",
                "line": 5,
                "source_line": f"print('{MARKUP}')",
                "fingerprint": "b1",
                "text": MARKUP,
                "stack": [{"file": "model.py", "line": 5, "name": "f", "code": MARKUP}],
            },
        ),
        (
            CacheLookedUp,
            _frame(0) | {"cache": "fx_graph", "result": "hit", "time_saved_us": 900_000},
        ),
        (
            CacheLookedUp,
            _frame(0)
            | {"cache": "aot_autograd", "result": "bypass", "reason": f"custom op {MARKUP}"},
        ),
        (CudagraphSkipped, _frame(0) | {"reason": f"mutated inputs {MARKUP}"}),
        (StepsTimed, _STEPS),
        (CudagraphMade, _frame(0) | {"graph": 2, "duration_us": 1500} | _MOVED),
        (
            Compiled,
            _frame(0)
            | _record(
                "forward", "f", restart_reasons=["Builtin\nall of it"], config_suppress_errors=None
            ),
        ),
        (Compiled, _frame(0) | _record("backward", "f", 100_000)),
        (Compiled, _frame(0) | _record("runtime", "f", 40_000)),
        (Recompiled, _frame(0, 1) | {"recompiled_from": "0/0", "guards": [_guard("0/0", "3")]}),
        (CompileStarted, _frame(0, 1) | {"function": "f", "file": "model.py", "line": 3}),
        (Compiled, _frame(0, 1) | _record("forward", "f")),
        (
            Recompiled,
            _frame(0, 2)
            | {"recompiled_from": "0/1", "guards": [_guard("0/1", "4"), _guard("0/0", "4")]},
        ),
        (
            Compiled,
            _frame(0, 2)
            | _record("forward", "f", 1_000, "recompile_limit", fail_reason="limit reached"),
        ),
        (CompileStarted, _frame(1) | {"function": "g", "file": "model.py", "line": 20}),
        (
            CompileFailed,
            _frame(1)
            | {
                "error_type": "BackendCompilerFailed",
                "message": f"bad {MARKUP}",
                "text": f"Traceback {MARKUP}",
            },
        ),
        (
            Compiled,
            _frame(1) | _record("forward", "g", 5_000, "failed", fail_type="BackendCompilerFailed"),
        ),
        (UnknownRecordSeen, {"name": f"artifact:{MARKUP}", "body": {"a": MARKUP}}),
        *(
            (CudagraphMade, _frame(0) | made)
            for made in (
                {"stage": "warm_up", "graph": -1},
                {"graph": 0, "mode": "inference", "duration_us": 2_000, "call_count": 2},
                {"graph": 1, "status": _MISMATCH["status"], "reasons": [_MISMATCH]},
            )
        ),
        (
            SnapshotTaken,
            {
                "final": True,
                "counters": {"stats": {MARKUP: 3}},
                "compile_times": {"inner": 0.25},
                "losses": {"disk full": 2},
            },
        ),
    ]
    opened = RunStarted(
        f"run-{RUN}",
        0,
        START_US,
        RUN,
        "train",
        "nightly",
        argv=["python", "train.py"],
        cwd="/work",
        environment={},
        git={"commit": "0" * 40, "dirty": True},
        host={"name": "box"},
    )
    closed = (
        [RunEnded(f"run-{RUN}", 1, START_US + 9_000_000, RUN, state, exit_code=0)]
        if state != "running"
        else []
    )
    told_events = [
        kind(process_id=PROCESS, sequence=n, time_us=START_US + n * 1000, **values)
        for n, (kind, values) in enumerate(told)
    ]
    return [opened, *told_events, *closed]


def record_run(connection: sqlite3.Connection, state: str = "finished") -> str:
    """Ingest the run; return its id."""
    Ingestor(connection).ingest(RUN, list_events(state), now_us=START_US + 10_000_000)
    return RUN
