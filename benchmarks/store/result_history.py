"""Make a database with years of benchmark results: `python -m benchmarks.store.result_history DB`.

One run a day, each a suite of models measured for speed and accuracy, through the one ingest.
Values wander, step and fail as nightly runs' do; torch, triton and the driver change now and then.
It adds to a database that is there: `python -m benchmarks.store.replay DB` puts compilations beside
the results. `python -m benchmarks.serve.pages DB
--only trends` then times the pages.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.events import (
    BenchMeasured,
    CommitsSeen,
    Event,
    ProcessStarted,
    RunEnded,
    RunStarted,
)
from compileboard.collectors.store.connection import checkpoint, open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate

DAY_US = 86_400_000_000
TORCHES = ("2.8.0", "2.9.0", "2.9.1", "2.10.0", "2.11.0", "2.12.0", "2.13.0")
TRITONS = ("3.4.0", "3.5.0", "3.5.1", "3.6.0", "3.6.0", "3.7.0", "3.7.0")
DRIVERS = ("570.86.15", "575.57.08", "580.65.06")
SUBJECTS = (
    "Fuse the two norms",
    "Fewer guards on modules",
    "Cache the lowered kernels",
    "Pin the allocator's pool",
)
SUITE, SEED = "nightly_models", 7
COMMITS_A_DAY = 37  # of pytorch/pytorch


@dataclass
class Model:
    """The centres of a model's numbers."""

    name: str
    speedup: float
    latency_ms: float
    compile_s: float
    peak_gb: float
    breaks: int
    noise: float


def make_models(count: int, chance: random.Random) -> list[Model]:
    """Make models whose sizes differ a hundredfold."""
    return [
        Model(
            f"model_{number:03d}",
            speedup=chance.uniform(0.9, 2.5),
            latency_ms=chance.lognormvariate(2, 1),
            compile_s=chance.lognormvariate(3, 0.6),
            peak_gb=chance.lognormvariate(0.5, 1),
            breaks=chance.choice((0, 0, 0, 0, 1, 2, 7)),
            noise=chance.uniform(0.003, 0.03),
        )
        for number in range(count)
    ]


def step(models: list[Model], chance: random.Random) -> None:
    """Let some models get better or worse for good, as a commit does."""
    for model in chance.sample(models, k=max(len(models) // 100, 1)):
        factor = chance.choice((0.85, 0.93, 1.05, 1.1))
        model.speedup *= factor
        model.compile_s /= factor
        model.breaks = max(model.breaks + chance.choice((-1, 0, 0, 1)), 0)


def make_hash(run_id: str, number: int = 0) -> str:
    """Make the hash of the commit that a run measured, or of one a `number` of commits before
    it.
    """
    return hashlib.sha256(f"{run_id}{number or ''}".encode()).hexdigest()[:40]


def make_commits(bench: str, run_id: str, day: int, started_us: int) -> CommitsSeen:
    """Make the commits of one day, each on the one before."""
    apart_us = DAY_US // COMMITS_A_DAY
    rows = [
        [
            make_hash(run_id, number),
            started_us - number * apart_us,
            "Ann Author",
            f"Change {number} of day {day}",
        ]
        for number in range(COMMITS_A_DAY)
    ]
    return CommitsSeen(bench, -1, started_us, rows, make_hash(name_run(day - 1)) if day else None)


def name_run(day: int) -> str:
    """Name the run of a day."""
    return f"01NIGHTLY{day:017d}"


def make_run(
    day: int, days: int, started_us: int, models: list[Model], chance: random.Random
) -> Iterator[Event]:
    """Yield the events of one day's run."""
    age = day / max(days, 1)
    run_id = name_run(day)
    bench = f"{run_id}/bench"
    gpu = {"name": "NVIDIA H200", "driver_version": DRIVERS[int(age * len(DRIVERS))]}
    git = {"commit": make_hash(run_id), "branch": "main"}
    git |= {"subject": f"{chance.choice(SUBJECTS)} (#{1000 + day})", "dirty": False}  # type: ignore[dict-item]
    started: dict[str, Any] = {
        "run_id": run_id,
        "name": "nightly",
        "suite": SUITE,
        "source": "bench",
        "git": git,
    }
    yield RunStarted(bench, 0, started_us, gpus=[gpu], host={"name": "gpu-01"}, **started)
    yield make_commits(bench, run_id, day, started_us)
    position = int(age * len(TORCHES))
    versions = {"torch_version": TORCHES[position], "triton_version": TRITONS[position]}
    yield ProcessStarted(f"{bench}/1", 0, started_us, run_id=run_id, pid=1, **versions)
    sequence = 0
    for model in models:
        for event in _measure(model, chance):
            sequence += 1
            where: dict[str, Any] = {
                "process_id": bench,
                "sequence": sequence,
                "time_us": started_us + sequence * 1000,
            }
            yield BenchMeasured(**where, **event)
    yield RunEnded(
        bench,
        sequence + 1,
        started_us + 3_600_000_000,
        run_id=run_id,
        state="finished",
        exit_code=0,
    )


def _measure(model: Model, chance: random.Random) -> Iterator[dict[str, Any]]:
    common = {
        "suite": SUITE,
        "model": model.name,
        "mode": "inference",
        "dtype": "bfloat16",
        "device": "cuda",
    }
    common |= {"hardware": "NVIDIA H200", "backend": "inductor_no_cudagraphs", "batch_size": 32}  # type: ignore[dict-item]
    if chance.random() < 0.01:
        yield {**common, "experiment": "performance", "status": "failed", "reason": "OOM"}
        return
    speedup, latency = (
        value * chance.lognormvariate(0, model.noise) for value in (model.speedup, model.latency_ms)
    )
    values = {
        "speedup": speedup,
        "speedup_low": speedup * (1 - 2 * model.noise),
        "speedup_high": speedup * (1 + 2 * model.noise),
        "abs_latency": latency,
        "eager_latency": latency * speedup,
        "compilation_latency": model.compile_s * chance.lognormvariate(0, 0.02),
        "dynamo_peak_mem": model.peak_gb,
        "eager_peak_mem": model.peak_gb * 1.1,
        "compression_ratio": 1.1 * chance.lognormvariate(0, 0.002),
        "graph_breaks": float(model.breaks),
        "recompiles": float(model.breaks // 2),
    }
    yield {**common, "experiment": "performance", "values": values}
    yield {
        **common,
        "experiment": "accuracy",
        "accuracy": "pass" if chance.random() > 0.02 else "fail_accuracy",
    }


def record_days(connection: sqlite3.Connection, days: int, model_count: int) -> Iterator[str]:
    """Record a run a day up to today, and yield the id of each."""
    chance = random.Random(SEED)
    models, ingestor = make_models(model_count, chance), Ingestor(connection)
    first_us = time.time_ns() // 1000 - days * DAY_US
    for day in range(days):
        if chance.random() < 0.2:
            step(models, chance)
        ingestor.ingest(
            name_run(day), list(make_run(day, days, first_us + day * DAY_US, models, chance))
        )
        if day % 50 == 0:
            checkpoint(connection)
        yield name_run(day)


def main(argv: list[str] | None = None) -> int:
    """Make the database and say how large it is."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.store.result_history", description=__doc__
    )
    parser.add_argument("database", type=Path, metavar="DB")
    parser.add_argument("--days", type=int, default=730)
    parser.add_argument("--models", type=int, default=200)
    arguments = parser.parse_args(argv)
    began = time.perf_counter()
    migrate(arguments.database)
    with closing(open_writer(arguments.database)) as connection:
        for _run_id in record_days(connection, arguments.days, arguments.models):
            pass
        checkpoint(connection)
        count, series = connection.execute(
            "select count(*), count(distinct series_id) from results"
        ).fetchone()
    size_mb = arguments.database.stat().st_size / 1e6
    print(
        f"{count:,} results of {series:,} series, {size_mb:.0f} MB, in "
        f"{time.perf_counter() - began:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
