"""Series changes and their incidents for tests, as detection gives them to the store."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from compileboard.app.core.store import FileStore
from compileboard.app.incidents.evidence import IncidentAssembler
from compileboard.app.incidents.queries import list_commented_ids, load_changes, load_incidents
from compileboard.collectors.store.incident_triage import DetectedRows, save_detected
from tests.unit.app.benched import BREAK_ID, RUNS
from tests.unit.app.seed import START_US

DAY_US = 86_400_000_000
BEFORE = {
    "run_id": RUNS[0],
    "name": "bench",
    "started_us": START_US,
    "commit": "a1b2c3d4" * 5,
    "subject": "Cache the mask",
    "torch": "2.11.0",
}
AFTER = BEFORE | {
    "run_id": RUNS[1],
    "started_us": START_US + DAY_US,
    "commit": "e5f6a7b8" * 5,
    "subject": "Print the shape",
    "torch": "2.12.0",
}
EVIDENCE: dict[str, Any] = {
    "before": BEFORE,
    "after": AFTER,
    "environment": [{"word": "torch", "before": "2.11.0", "now": "2.12.0"}],
    "commits": {
        "known": True,
        "count": 2,
        "listed": [
            {
                "hash": "e5f6a7b8" * 5,
                "author": "Ada",
                "subject": "Print the shape",
                "time_us": START_US + DAY_US,
            },
            {
                "hash": "99887766" * 5,
                "author": "Kim",
                "subject": "Rename a file",
                "time_us": START_US + DAY_US // 2,
            },
        ],
    },
    "causes": [
        {
            "kind": "graph_break",
            "word": "new",
            "label": "call to print in Breaky.forward",
            "before": 0,
            "after": 2,
            "break_id": BREAK_ID,
            "cause_id": None,
        },
        {"kind": "setting", "word": "changed", "label": "dynamic", "before": None, "after": None},
    ],
    "points": {"before": 12, "after": 4},
}
_CHANGE: dict[str, Any] = {
    "id": "f" * 16,
    "kind": "step",
    "subject": "model",
    "suite": "bench_models",
    "model": "Breaky",
    "mode": "inference",
    "dtype": "float32",
    "device": "cuda",
    "hardware": "NVIDIA H200",
    "backend": "inductor",
    "dynamic": 0,
    "batch_size": 8,
    "world_size": 1,
    "branch": "main",
    "metric": "speedup",
    "direction": "worse",
    "state": "confirmed",
    "before_value": 0.65,
    "after_value": 0.578,
    "relative": -0.11,
    "p_value": 1e-5,
    "before_run_id": RUNS[0],
    "first_run_id": RUNS[1],
    "low_run_id": RUNS[1],
    "high_run_id": RUNS[1],
    "recovered_run_id": None,
    "first_us": START_US + DAY_US,
    "confirmed_us": START_US + 2 * DAY_US,
}


def make_change(*, evidence: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Make a change with some of it, or of its evidence, changed."""
    return _CHANGE | changes | {"evidence": json.dumps(EVIDENCE | (evidence or {}))}


def keep(
    store: sqlite3.Connection, *changes: dict[str, Any], now_us: int = START_US + 3 * DAY_US
) -> None:
    """Store changes, and the incidents that they make, as a pass of detection does."""
    save_detected(store, DetectedRows(changes), seen="{}", version=1, now_us=now_us)
    stored = load_changes(store)
    ranks = {run_id: rank for rank, run_id in enumerate(RUNS)}
    detected = IncidentAssembler(FileStore(store), ranks).assemble(
        stored,
        load_incidents(store),
        {change["id"] for change in changes},
        list_commented_ids(store),
        {(change.suite, change.branch) for change in stored},
    )
    save_detected(store, detected, seen="{}", version=1, now_us=now_us)


def keep_one_of_each(store: sqlite3.Connection) -> None:
    """Store an incident of every state, with changes of every kind, direction and subject that
    there is.
    """
    suite = {"subject": "suite", "model": "", "batch_size": 0, "metric": "geomean_speedup"}
    runs = {
        "subject": "runs",
        "model": "train",
        "suite": "",
        "metric": "recompile_count",
        "batch_size": 0,
    }
    runs |= {"mode": "", "dtype": "", "device": "", "backend": "", "world_size": 0}
    later = {
        "first_run_id": RUNS[2],
        "low_run_id": RUNS[2],
        "high_run_id": RUNS[2],
        "before_run_id": RUNS[1],
    }
    later |= {"first_us": START_US + 2 * DAY_US}
    missing = {"after_value": None, "relative": None, "p_value": None}
    alone: dict[str, Any] = {"environment": [], "causes": []}
    nothing = alone | {"before": None, "after": None, "commits": {"known": False}, "points": {}}
    keep(
        store,
        make_change(),
        make_change(
            id="changed", metric="unique_graphs", direction="changed", relative=None,
            before_value=0.0,
        ),
        make_change(id="suite", **suite, recovered_run_id=RUNS[2]),
        make_change(
            id="better", direction="better", model="Bert4", relative=0.2,
            before_value=1.5, after_value=1.8, branch="next",
        ),
        make_change(
            id="unconfirmed", state="unconfirmed", confirmed_us=None, model="GPT2x4",
            metric="abs_latency_ms", branch="other", **later, evidence=alone,
        ),
        make_change(
            id="drift", kind="drift", model="Mlp", metric="compilation_latency_s",
            relative=0.1, before_value=2.0,
        ),
        make_change(
            id="fails", metric="passes", before_value=1.0, after_value=0.0, relative=-1.0,
            p_value=None, model="Resnet18", branch="next", recovered_run_id=RUNS[2], evidence=alone,
        ),
        make_change(
            id="gone", kind="vanished", model="Sleeper", **missing, **later, evidence=alone,
        ),
        make_change(id="runs", **runs, **later, evidence=nothing),
        make_change(id="withdrawn", state="withdrawn", model="Hungry", branch="third", **later),
    )  # fmt: skip
