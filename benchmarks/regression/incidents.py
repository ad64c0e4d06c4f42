"""Count the incidents of one commit in a suite.

    python -m benchmarks.regression.incidents [--seeds N …]

Each line is a history of nightly runs through ingest and detection, in which one commit (or ten
days) changed every model; the last one is flat. Numbers are of one seed each, in their order. Found
are models with a change of speedup or status within three runs of the planted one.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import Row, print_table, scratch_folder
from benchmarks.store.result_history import (
    DAY_US,
    Model,
    make_commits,
    make_hash,
    make_models,
    name_run,
)
from compileboard.app.incidents.update import update_incidents
from compileboard.collectors.contract.events import (
    BenchMeasured,
    Event,
    ProcessStarted,
    RunEnded,
    RunStarted,
)
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate

DAYS, CHANGE, BACK = 60, 40, 50
START_US = 1_750_000_000_000_000
FLAT_MODELS = 400  # of five measured metrics each: 2,000 series
NEAR = 3
COMMON = {
    "suite": "nightly",
    "mode": "inference",
    "dtype": "bfloat16",
    "device": "cuda",
    "hardware": "NVIDIA H200",
}


@dataclass(frozen=True)
class Case:
    """A history: `level` is what a day multiplies every speedup by; 0 is a failure."""

    what: str
    level: Callable[[int], float]
    gaps: float = 0.0
    changes: int = 1
    length: int = 0  # days of the change


def stepped(size: float, back: int = DAYS) -> Callable[[int], float]:
    """Return levels that go down for the days from CHANGE to `back`."""
    return lambda day: 1 - size if CHANGE <= day < back else 1.0


CASES = [
    Case("5% step", stepped(0.05)),
    Case("10% step", stepped(0.1)),
    Case("10% step, a third of the results missing", stepped(0.1), gaps=1 / 3),
    Case("5% step, reverted after 10 runs", stepped(0.05, BACK), changes=2),
    Case("10% step, reverted after 10 runs", stepped(0.1, BACK), changes=2),
    Case(
        "drift of 10% within 20 runs",
        lambda day: 1 - 0.1 * min(max(day - 30, 0) / 20, 1),
        length=10,
    ),
    Case("every model fails", lambda day: 0.0 if day >= CHANGE else 1.0),
    Case(
        "every model fails for 3 runs",
        lambda day: 0.0 if CHANGE <= day < CHANGE + 3 else 1.0,
        changes=2,
    ),
]


def make_run(day: int, case: Case, models: list[Model], chance: random.Random) -> Iterator[Event]:
    """Yield the events of one day's run."""
    run_id, started_us = name_run(day), START_US + day * DAY_US
    bench = f"{run_id}/bench"
    git: dict[str, Any] = {
        "commit": make_hash(run_id),
        "branch": "main",
        "subject": f"Change {day}",
        "dirty": False,
    }
    common: dict[str, Any] = {
        "run_id": run_id,
        "name": "nightly",
        "suite": "nightly",
        "source": "bench",
    }
    yield RunStarted(
        bench, 0, started_us, gpus=[{"name": "NVIDIA H200"}], host={"name": "a"}, git=git, **common
    )
    yield make_commits(bench, run_id, day, started_us)
    yield ProcessStarted(f"{bench}/1", 0, started_us, run_id=run_id, pid=1, torch_version="2.13.0")
    level = case.level(day)
    for number, model in enumerate(models, 1):
        where: dict[str, Any] = {
            **COMMON,
            "process_id": bench,
            "sequence": number,
            "time_us": started_us + number,
        }
        where |= {"model": model.name, "backend": "inductor", "experiment": "performance"}
        if not level:  # as upstream writes it: without its batch size
            yield BenchMeasured(**where, status="failed", reason="unknown")
        elif chance.random() >= case.gaps:
            yield BenchMeasured(**where, batch_size=32, values=_measure(model, level, chance))
    yield RunEnded(
        bench,
        len(models) + 1,
        started_us + 3_600_000_000,
        run_id=run_id,
        state="finished",
        exit_code=0,
    )


def _measure(model: Model, level: float, chance: random.Random) -> dict[str, float]:
    def about(value: float, noise: float) -> float:
        return value * chance.lognormvariate(0, noise)

    eager = about(model.latency_ms, model.noise)
    speedup = about(model.speedup, model.noise) * level
    return {
        "speedup": speedup,
        "abs_latency": eager / speedup,
        "compilation_latency": about(model.compile_s, 0.02),
        "dynamo_peak_mem": about(model.peak_gb, 0.002),
        "compression_ratio": about(1.1, 0.002),
        "graph_breaks": float(model.breaks),
    }


@dataclass(frozen=True)
class Counts:
    """What was found of one history: models; incidents of the planted commit; incidents and
    improvements at all.
    """

    found: int
    back: int
    incidents: int
    open: int
    worse: int
    better: int


def measure(case: Case, folder: Path, model_count: int, seed: int) -> Counts:
    """Record a history, bring incidents up to date, and count them."""
    chance = random.Random(seed)
    models, database = (
        make_models(model_count, chance),
        folder / f"{seed} {case.what.replace('%', '')}.db",
    )
    migrate(database)
    with closing(open_writer(database)) as connection:
        ingestor = Ingestor(connection)
        for day in range(DAYS):
            ingestor.ingest(name_run(day), list(make_run(day, case, models, chance)))
    update_incidents(database, everything=True)
    with closing(open_writer(database)) as connection:
        changed = connection.execute(
            "select model, metric, subject, incident_id, direction, first_run_id, "
            "recovered_run_id from series_changes"
        ).fetchall()
        stored = connection.execute("select id, state, direction from incidents").fetchall()
    states = {row["id"]: row["state"] for row in stored if row["direction"] == "worse"}
    near = set(map(name_run, range(CHANGE - NEAR - case.length, CHANGE + NEAR + case.length + 1)))
    own = [row for row in changed if row["first_run_id"] in near and row["direction"] == "worse"]
    models_found = [
        row for row in own if row["subject"] == "model" and row["metric"] in ("speedup", "passes")
    ]
    found, back = (
        {row["model"] for row in models_found if row["recovered_run_id"] or not only}
        for only in (0, 1)
    )
    incidents = {row["incident_id"] for row in own} & states.keys()
    is_open = sum(states[id_] == "open" for id_ in incidents)
    better = sum(row["direction"] == "better" for row in stored)
    return Counts(len(found), len(back), len(incidents), is_open, len(states), better)


def make_row(case: Case, counts: list[Counts]) -> Row:
    """Join the numbers of each seed."""
    found, back, made, is_open, worse, better = (
        ", ".join(str(getattr(of_seed, name)) for of_seed in counts)
        for name in Counts.__dataclass_fields__
    )
    back = back if case.changes == 2 else ""
    return Row(case.what, found, back, f"{made}; open {is_open}", f"{worse}; better {better}")


def main(argv: list[str] | None = None) -> int:
    """Measure each case and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.regression.incidents", description=__doc__
    )
    parser.add_argument("--models", type=int, default=50)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], metavar="N")
    arguments = parser.parse_args(argv)
    with scratch_folder() as folder:
        flat = Case(f"flat, {5 * FLAT_MODELS:,} series", lambda _day: 1.0)
        sizes = [(case, arguments.models) for case in CASES] + [(flat, FLAT_MODELS)]
        rows = [
            make_row(case, [measure(case, Path(folder), size, seed) for seed in arguments.seeds])
            for case, size in sizes
        ]
    headings = ("what", "models found", "recovered", "incidents of it", "all that got worse")
    seeds = ", ".join(map(str, arguments.seeds))
    print_table(
        f"Incidents, {arguments.models} models × {DAYS} runs, seeds {seeds}",
        rows,
        headings=headings,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
