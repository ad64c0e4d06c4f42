"""A run whose every text is an attack: on a page, in a template, in a spreadsheet."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

from compileboard.collectors.contract.events import (
    CacheLookedUp,
    Compiled,
    CompileFailed,
    CompileStarted,
    CudagraphMade,
    CudagraphSkipped,
    Event,
    GraphBroke,
    GuardFailure,
    ProcessStarted,
    Recompiled,
    ReproCaptured,
    RunStarted,
    RuntimeFailed,
    SnapshotTaken,
    UnknownRecordSeen,
)
from compileboard.collectors.contract.fingerprints import cause_fingerprint, content_id, format_id
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.ingest.repro_writer import repro_id
from compileboard.collectors.store.repros import ReproResult, save_result

RUN = "01HOST11E00000000000000000"
FORMULA = '=HYPERLINK("http://evil","x")'
MARKUP = "<img src=x onerror=alert(1)></script><script>alert(1)</script>{{7*7}}\"'\u2028"
BAD = f"{FORMULA} {MARKUP} ](http://evil) @everyone | `x`"
BREAK_ID = format_id(content_id("break", "b"))
REPRO_ID = format_id(repro_id("c" * 32, 0))
CAUSE_ID = format_id(content_id("cause", cause_fingerprint("g", BAD, BAD)))
FRAME = {"compile_id": "0/0", "frame_id": 0, "frame_compile_id": 0, "attempt": 0}
AGAIN = FRAME | {"compile_id": "0/1", "frame_compile_id": 1}


def _record(frame: dict[str, Any]) -> dict[str, Any]:
    times = {
        "start_us": 5,
        "duration_us": 900_000,
        "phases_us": {"dynamo": 400_000, "inductor": 500_000},
    }
    metrics = {"co_name": BAD, "fail_reason": BAD, "restart_reasons": [BAD], BAD: BAD}
    return frame | times | {"function": BAD, "file": BAD, "line": 3, "metrics": metrics}


def _make_manifest() -> dict[str, Any]:
    texts = (
        "error_type",
        "message",
        "traceback",
        "operation",
        "function",
        "file",
        "phase",
        "backend",
        "device",
    )
    entry = {
        "name": BAD,
        "dtype": BAD,
        "shape": [BAD],
        "stride": [BAD],
        "device": BAD,
        "values": BAD,
        "storage": 0,
    }
    maps = {
        "versions": {"torch": BAD, BAD: BAD},
        "settings": {BAD: {BAD: BAD}},
        "accuracy": {BAD: BAD},
    }
    inputs = [entry, {"name": BAD, "kind": "other", "value": BAD, "expression": BAD}]
    return {
        **dict.fromkeys(texts, BAD),
        "format": 1,
        "kind": "crash",
        "level": "aot",
        "inputs": inputs,
        **maps,
    }


RESULT = ReproResult(
    "analyze", BAD, 1.0, 1, 2, BAD, 1, BAD, BAD, {"operation": BAD, "notes": [BAD]}, BAD
)
ROWS = [dict.fromkeys(("node", "operation", "verdict", "error", "dtype", "shape", "reason"), BAD)]


def list_hostile_events() -> list[Event]:
    """Return a run in which a break, a path, a tag, a stack, a guard and a traceback are
    hostile.
    """
    stack = [{"file": BAD, "line": 1, "name": BAD, "code": BAD}]
    moved = {"name": BAD, "dtype": BAD, "shape": [8], "stack": stack}
    mismatch = {"graph": 0, "status": BAD, "inputs": [moved], "input_count": 2}
    guard = GuardFailure("0/0", BAD, BAD, BAD, BAD, BAD, BAD, 3, BAD, fingerprint="g")
    told: list[tuple[type[Event], dict[str, Any]]] = [
        (
            ProcessStarted,
            {
                "run_id": RUN,
                "pid": 7,
                "argv": [BAD],
                "capabilities": {BAD: BAD},
                "environment": {BAD: BAD},
            },
        ),
        (CompileStarted, FRAME | {"function": BAD, "file": BAD, "line": 3, "stack": stack}),
        (
            GraphBroke,
            FRAME
            | dict.fromkeys(
                (
                    "gb_id",
                    "gb_type",
                    "reason",
                    "explanation",
                    "debug_context",
                    "source_line",
                    "text",
                ),
                BAD,
            )
            | {
                "hints": [BAD],
                "function": BAD,
                "file": BAD,
                "line": 3,
                "fingerprint": "b",
                "stack": stack,
            },
        ),
        (CacheLookedUp, FRAME | {"cache": BAD, "result": "bypass", "reason": BAD, "key": BAD}),
        (CudagraphSkipped, FRAME | {"reason": BAD, "stack": stack}),
        (Compiled, _record(FRAME)),
        (Recompiled, AGAIN | {"recompiled_from": "0/0", "guards": [guard], "text": BAD}),
        (Compiled, _record(AGAIN) | {"outcome": "recompile_limit"}),
        (CompileFailed, AGAIN | {"error_type": BAD, "message": BAD, "text": BAD}),
        (Compiled, _record(FRAME | {"compile_id": "1/0", "frame_id": 1}) | {"outcome": "failed"}),
        (
            CompileFailed,
            FRAME
            | {"compile_id": "1/0", "frame_id": 1, "error_type": BAD, "message": BAD, "text": BAD},
        ),
        (
            RuntimeFailed,
            FRAME
            | dict.fromkeys(("error_type", "message", "text", "function", "file", "phase"), BAD),
        ),
        (
            ReproCaptured,
            {"position": 0, "manifest": _make_manifest(), "program": BAD, "dynamo_program": BAD},
        ),
        (UnknownRecordSeen, {"name": BAD, "body": {BAD: BAD}}),
        (CudagraphMade, FRAME | {"mode": BAD, "graph": 0}),
        (
            CudagraphMade,
            FRAME | {"mode": BAD, "graph": 1, "status": BAD, "reasons": [mismatch]},
        ),
        (
            SnapshotTaken,
            {
                "final": True,
                "counters": {BAD: {BAD: 1}},
                "compile_times": {BAD: 1.0},
                "losses": {BAD: 2},
            },
        ),
    ]
    opened = RunStarted(
        f"run-{RUN}", 0, 1, RUN, BAD, BAD, tags={"k": BAD}, argv=[BAD], cwd=BAD,
        git={"commit": "0" * 40, "branch": BAD, "subject": BAD, "remote": BAD},
        host={"name": BAD, "os": BAD, "cpu": BAD},
        gpus=[{"name": BAD}], environment={BAD: BAD},
    )  # fmt: skip
    return [opened, *(kind("c" * 32, n, n + 1, **values) for n, (kind, values) in enumerate(told))]


def record_hostile_run(store: sqlite3.Connection) -> None:
    """Ingest the run, with a person's own hostile title and note."""
    Ingestor(store).ingest(RUN, list_hostile_events(), now_us=10)
    save_result(store, REPRO_ID, RESULT)
    save_result(
        store, REPRO_ID, replace(RESULT, detail={"status": BAD, "operation": BAD, "rows": ROWS})
    )
    save_result(
        store,
        REPRO_ID,
        replace(RESULT, command="bisect", detail={"subsystem": BAD, "settings": [{}]}),
    )
    words = {"run": RUN, "title": BAD, "note": BAD}
    sql = (
        "insert into run_annotations (run_id, title, note, changed_us) values (:run, :title, "
        ":note, 1)"
    )
    store.execute(sql, words)
