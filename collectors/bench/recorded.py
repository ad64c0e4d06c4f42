"""A bench run in the store: keep each result as it comes, and find a run to go on with."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from collectors.bench.isolate import Done
from collectors.bench.plan import Planned
from collectors.bench.settings import Settings, changed
from collectors.events import BenchMeasured
from collectors.record.launch import TRACE_NAME, Request, child_environment
from collectors.record.opening import describe_run, make_spool, spool_folder
from collectors.record.recording import Recording
from collectors.record.said import say_event
from collectors.store.connect import open_reader
from collectors.store.errors import StoreMissing

PLAN_TAG = "bench_plan"
COUNT_RECOMPILES = """
select count(*)
from recompiles join processes on processes.id = recompiles.process_id
where processes.run_id = :run and processes.task = :task
"""
LIST_RUNS = """
select runs.id, runs.state
from run_tags join runs on runs.id = run_tags.run_id
where run_tags.key = :key and run_tags.value = :plan
order by runs.started_us desc, runs.id desc
limit 1
"""
LIST_DONE = """
select series.suite, series.model, results.experiment
from results join series on series.id = results.series_id
where results.run_id = :run and results.status <> 'not_run'
order by results.id
"""


@dataclass
class BenchRun:
    """Hold the run that a bench command records into."""

    request: Request
    say: Callable[[str], None]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    argv: tuple[str, ...] = ()
    run_id: str | None = None  # of a run that is gone on with
    cwd: str | None = None  # where the models' code is, if not here

    def open(self) -> None:
        """Make the spool and open the database.

        Raises: StoreError if it can never take this run.
        """
        cwd = self.cwd or os.getcwd()
        manifest = describe_run(
            self.environment,
            argv=self.argv or ["python", "-m", "collectors", *sys.argv[1:]],
            cwd=cwd,
            code_folder=cwd,
            run_id=self.run_id,
            source="bench",
            database=os.path.abspath(self.request.database),
            name=self.request.name or "bench",
            suite=self.request.suite,
            tags=self.request.tags,
            level=self.request.level,
            keep_source=self.request.keep_source,
        )
        folder = spool_folder(manifest, self.environment, shared=self.run_id is not None)
        if self.request.level == "full":
            manifest.trace_folder = str(folder / TRACE_NAME)
        make_spool(folder, manifest)
        self.manifest = manifest
        self.recording = Recording(folder, manifest, self.say)
        self.recording.open()
        self.sequence = 1  # 0 is the run's start, 1 its end
        self.hardware = manifest.gpus[0].get("name") if manifest.gpus else None
        self.cpu = manifest.host.get("cpu")

    @property
    def folder(self) -> Path:
        return self.recording.folder

    def child_environment(self, task: str) -> dict[str, str]:
        """Return what a task's process gets: the caller's environment, the hooks, and which task it is."""
        child = child_environment(self.request, self.environment, self.manifest.run_id, self.folder)
        return {**child, "COMPILEBOARD_TASK": task, "PYTHONUNBUFFERED": "1"}

    def beat(self) -> None:
        """Record what the children wrote meanwhile."""
        self.recording.step()

    def keep(self, planned: Planned, settings: Settings, done: Done, command: str) -> BenchMeasured:
        """Record a result; it is in the spool before this returns, and in the database as soon as that takes it."""
        self.recording.step()
        outcome = done.outcome
        values = dict(outcome.values)
        recompiles = self._recompiles(planned.name)
        if recompiles is not None and outcome.status == "measured":
            values["recompiles"] = float(recompiles)
        self.sequence += 1
        hardware = outcome.hardware or (self.hardware if settings.device == "cuda" else self.cpu)
        event = BenchMeasured(
            process_id=self.manifest.recorder_process_id,
            sequence=self.sequence,
            time_us=time.time_ns() // 1000,
            suite=planned.ref.suite,
            model=planned.ref.name,
            experiment=planned.experiment,
            mode=settings.mode,
            dtype=settings.dtype,
            device=settings.device,
            hardware=hardware,
            backend=settings.label(),
            dynamic=settings.dynamic,
            batch_size=outcome.batch_size or planned.ref.batch_size_for(settings.mode, settings.batch_size),
            status=outcome.status,
            reason=outcome.reason,
            accuracy=outcome.accuracy,
            values=values,
            repeats=outcome.repeats,
            facts={**outcome.facts, **self._tag(), "settings": changed(settings), "family": planned.ref.family},
            message=outcome.message,
            traceback=outcome.traceback,
            task=planned.name,
            started_us=done.started_us,
            duration_us=done.duration_us,
            command=command,
        )
        say_event(self.folder, event)
        self.recording.step()
        return event

    def _tag(self) -> dict[str, str]:
        """Return upstream's tag, which is a column of its files."""
        tag = self.request.tags.get("tag")
        return {"tag": tag} if tag else {}

    def _recompiles(self, task: str) -> int | None:
        recorder = self.recording.recorder
        if recorder is None:
            return None
        key = {"run": self.manifest.run_id, "task": task}
        (number,) = recorder.connection.execute(COUNT_RECOMPILES, key).fetchone()
        return int(number)

    def end(self, *, interrupted: bool) -> None:
        """Record that the run is over."""
        if interrupted:
            self.recording.end("interrupted", signal="SIGINT")
        else:
            self.recording.end("finished", exit_code=0)


@dataclass(frozen=True)
class Before:
    """Name a run that can be gone on with, and what of it is done: (suite, model, experiment)."""

    run_id: str
    done: frozenset[tuple[str, str, str]]


def find_before(database: str, plan: str, wanted: str) -> Before:
    """Find the run to go on with: the one that is named, or the newest of the same plan.

    Raises: ValueError in words if there is none; StoreError.
    """
    try:
        reader = open_reader(database)
    except StoreMissing:
        raise ValueError(f"--resume: there is no database at {database}, so nothing was begun") from None
    with closing(reader):
        if wanted:
            found = reader.execute(
                "select id, state from runs where id >= :start and id < :end and source = 'bench' order by id limit 2",
                {"start": wanted, "end": wanted + "\uffff"},
            ).fetchall()
            if len(found) != 1:
                told = "no bench run" if not found else "several runs"
                raise ValueError(f"--resume {wanted}: {told} with this id in {database}")
            row = found[0]
            tags = dict(
                tuple(it)
                for it in reader.execute("select key, value from run_tags where run_id = :id", {"id": row["id"]})
            )
            if tags.get(PLAN_TAG) != plan:
                raise ValueError(
                    f"--resume {wanted}: that run measured other models or with other settings; give the same ones"
                )
        else:
            row = reader.execute(LIST_RUNS, {"key": PLAN_TAG, "plan": plan}).fetchone()
            if row is None:
                raise ValueError(
                    f"--resume: no run in {database} measured these models with these settings; leave --resume out"
                )
        done = reader.execute(LIST_DONE, {"run": row["id"]}).fetchall()
    return Before(row["id"], frozenset((it["suite"], it["model"], it["experiment"]) for it in done))
