"""Find the run that `--resume` continues, and the local database of a pushed run."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from compileboard.collectors.bench.report.upstream_files import load_results
from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.record.spool import home
from compileboard.collectors.store.connection import StoreError, StoreMissing, open_reader
from compileboard.collectors.store.large_runs import reopen_run_of_database
from compileboard.collectors.terminal.run_summary import find_run, read_alive_since_us

PLAN = "COMPILEBOARD_BENCH_PLAN"  # stored with a run's environment: which models, and how
NEWEST_OF_PLAN = """
select id
from runs
where source = 'bench' and json_extract(facts, '$.environment.COMPILEBOARD_BENCH_PLAN') = :plan
order by started_us desc, id desc
limit 1
"""
PLAN_OF = """
select json_extract(facts, '$.environment.COMPILEBOARD_BENCH_PLAN')
from runs
where id = :id and source = 'bench'
"""
STATE = "select state, heartbeat_us from runs where id = :id"


class NotMeasured(ValueError):
    """The database does not have the run to resume."""


@dataclass(frozen=True)
class ResumePoint:
    run_id: str
    done: frozenset[tuple[str, str, str]]
    results: tuple[BenchMeasured, ...] = ()


def find_resume_point(database: str, plan: str, named_run: str) -> ResumePoint:
    """Find the run to resume: the named one, or the newest of the same plan.

    Raises ValueError if there is none, StoreError.
    """
    try:
        reader = open_reader(database)
    except StoreMissing:
        raise ValueError(
            f"--resume: there is no database at {database}, so nothing was begun"
        ) from None
    with closing(reader):
        run_id = (
            _find_named_run(reader, database, plan, named_run)
            if named_run
            else _find_newest_run(reader, database, plan)
        )
        state, heartbeat_us = reader.execute(STATE, {"id": run_id}).fetchone()
        if state == "running" and heartbeat_us >= read_alive_since_us():
            raise ValueError(
                f"--resume: run {run_id} is still being measured; wait for its end, or end it "
                "with Ctrl-C"
            )
        reopen_run_of_database(database, run_id)
        results = tuple(load_results(reader, run_id))
    return ResumePoint(
        run_id,
        frozenset((result.suite, result.model, result.experiment) for result in results),
        results,
    )


def _find_named_run(reader: sqlite3.Connection, database: str, plan: str, named_run: str) -> str:
    try:
        run_id = find_run(reader, named_run, "bench")
    except ValueError as error:
        raise NotMeasured(f"--resume {named_run}: {error}") from None
    row = reader.execute(PLAN_OF, {"id": run_id}).fetchone()
    if run_id is None or row is None:
        raise NotMeasured(f"--resume {named_run}: no run of bench with this id in {database}")
    if row[0] != plan:
        raise ValueError(
            f"--resume {named_run}: that run measured other models or with other settings; "
            "give the same ones"
        )
    return run_id


def _find_newest_run(reader: sqlite3.Connection, database: str, plan: str) -> str:
    row = reader.execute(NEWEST_OF_PLAN, {"plan": plan}).fetchone()
    if row is None:
        raise NotMeasured(
            f"--resume: no run in {database} measured these models with these settings; leave "
            "--resume out"
        )
    return str(row["id"])


KEEP_S = 7 * 24 * 3600.0  # How long an interrupted run is kept.
SUFFIXES = ("", "-wal", "-shm")


def make_local_copy(environment: Mapping[str, str]) -> str:
    folder = _bench_folder(environment)
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    for path in folder.glob("*.db"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > KEEP_S:
                drop_local_copy(str(path))
    return str(folder / f"{time.time_ns():x}-{os.getpid()}.db")


def drop_local_copy(path: str) -> None:
    for suffix in SUFFIXES:
        with suppress(OSError):
            os.unlink(path + suffix)


def find_pushed(
    environment: Mapping[str, str], plan: str, named_run: str
) -> tuple[str, ResumePoint]:
    """Find the run to resume among those pushed from this machine, and its database.

    Raises ValueError if there is none, StoreError.
    """
    for path in sorted(_bench_folder(environment).glob("*.db"), reverse=True):
        with suppress(NotMeasured, StoreError):
            return str(path), find_resume_point(str(path), plan, named_run)
    which = named_run or "of these models with these settings"
    raise ValueError(
        f"--resume: no interrupted run {which} is on this machine, where a pushed run waits "
        f"{KEEP_S / 86400:.0f} days; "
        "leave --resume out"
    )


def _bench_folder(environment: Mapping[str, str]) -> Path:
    return home(environment) / "bench"
