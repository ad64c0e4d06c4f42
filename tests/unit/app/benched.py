"""Benchmark results for tests of pages, given to a store as the harness gives them: as events."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

from collectors.events import BenchMeasured, Event, ProcessStarted, RunEnded, RunStarted
from collectors.store.ingest import Ingestor
from tests.unit.app.seed import START_US

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
    values={"speedup": 1.25, "speedup_low": 1.21, "speedup_high": 1.29, "abs_latency": 3.2, "eager_latency": 4.0},
    repeats={"eager": [4.0, 4.1, 3.9], "compiled": [3.2, 3.1, 3.3]},
    task="mlp-performance",
    command="python -m collectors bench --only mlp --performance --inference",
)
ACCURACY: dict[str, Any] = {
    "experiment": "accuracy",
    "values": {"graph_breaks": 0.0, "calls_captured": 7.0, "unique_graphs": 1.0, "compilation_latency": 9.5},
    "repeats": {},
    "accuracy": "pass",
    "task": "mlp-accuracy",
}


def measure(**changes: Any) -> BenchMeasured:
    """Make a result of the small MLP with some of it changed."""
    return replace(MLP, **changes)


def add_results(store: sqlite3.Connection, run_id: str, *events: BenchMeasured, started_us: int = START_US) -> None:
    """Record a benchmark run with its results; each result's task is a process of its own."""
    bench = f"{run_id}/bench"
    begun: list[Event] = [
        RunStarted(bench, 0, started_us, run_id=run_id, name="bench", source="bench", suite="builtin", argv=["bench"])
    ]
    tasks = [
        ProcessStarted(f"{run_id}/{it.task}", 0, started_us, run_id=run_id, pid=n, task=it.task)
        for n, it in enumerate(events, 1)
        if it.task
    ]
    said = [
        replace(it, process_id=bench, sequence=n, time_us=started_us + n * 1_000_000) for n, it in enumerate(events, 1)
    ]
    ended = RunEnded(bench, len(events) + 1, started_us + 60_000_000, run_id=run_id, state="finished", exit_code=0)
    Ingestor(store).ingest(run_id, [*begun, *tasks, *said, ended], now_us=started_us)
