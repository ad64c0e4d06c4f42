"""Fill a database with recorded events under new identities: `python -m benchmarks.replay OUT.db`.

Every event is a real one, recorded from torch. New are: runs, processes, times (spread over `--days`), the
names, suites, hosts, GPUs, versions, commits and tags of the runs, and the folders of their functions, so that
each project has functions, breaks and causes of its own. The same seed gives the same database.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import Row, print_table
from benchmarks.recorded import Recording, Renamer, find_sources, read_recordings
from benchmarks.replay_runs import DAY_US, Project, RunPlan, make_projects, plan_runs
from compileboard.collectors.events import (
    Compiled,
    Event,
    GraphBroke,
    ProcessStarted,
    RunEnded,
    RunStarted,
    SnapshotTaken,
)
from compileboard.collectors.store.connect import checkpoint, open_writer
from compileboard.collectors.store.ingest import Ingestor
from compileboard.collectors.store.migrations import migrate_connection

NEWEST_US = 1_790_000_000_000_000  # 2026-09-21; the last run's start when --until is not given
GAP_US = 2_000_000
MARGIN = 1.01  # so that what is asked for is reached


@dataclass
class Progress:
    """Count what was replayed."""

    compilations: int = 0
    breaks: int = 0
    events: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, event: Event) -> None:
        """Count one event."""
        self.events += 1
        self.compilations += isinstance(event, Compiled)
        self.breaks += isinstance(event, GraphBroke)
        self.kinds[event.KIND] += 1


class Replayer:
    """Turn recordings into the events of planned runs."""

    def __init__(self, recordings: list[Recording], rng: random.Random, wanted_ratio: float) -> None:
        self.recordings = recordings
        self.rng = rng
        self.wanted_ratio = wanted_ratio  # breaks a compilation
        self.progress = Progress()
        self.breaking = [r for r in recordings if r.breaks / r.compilations >= wanted_ratio]
        if not self.breaking:
            raise SystemExit("no recording has enough graph breaks for that many; ask for fewer --breaks")

    def run(self, plan: RunPlan) -> Iterator[Event]:
        """Yield a run's events in the order a recorder would bring them."""
        yield self._count(self._opening(plan))
        ends = plan.started_us
        quota = plan.compilations
        for number in range(plan.processes):
            share = quota // plan.processes + (quota % plan.processes if number == 0 else 0)
            for event in self._process(plan, number, share):
                ends = max(ends, event.time_us)
                yield self._count(event)
        if plan.state != "running":
            yield self._count(
                RunEnded(
                    process_id=plan.recorder_id,
                    sequence=1,
                    time_us=ends + GAP_US,
                    run_id=plan.run_id,
                    state=plan.state,
                    exit_code={"finished": 0, "failed": 1}.get(plan.state),
                    signal="SIGKILL" if plan.state == "killed" else None,
                )
            )

    def _count(self, event: Event) -> Event:
        self.progress.add(event)
        return event

    def _opening(self, plan: RunPlan) -> RunStarted:
        project = plan.project
        return RunStarted(
            process_id=plan.recorder_id,
            sequence=0,
            time_us=plan.started_us,
            run_id=plan.run_id,
            name=project.name,
            suite=project.suite,
            tags=plan.tags,
            argv=["python", project.script, "--seed", str(plan.number)],
            cwd=f"/srv/{project.folder}",
            git=plan.git,
            host=plan.host,
            gpus=plan.gpus,
        )

    def _process(self, plan: RunPlan, number: int, compilations: int) -> Iterator[Event]:
        """Yield one process: recordings one after another, as after torch._dynamo.reset()."""
        process_id = f"{plan.rng.getrandbits(128):032x}"
        renamer = Renamer(process_id, plan.project.folder, plan.epoch)
        start_us = plan.started_us + 3_000_000
        yield self._process_started(plan, number, process_id, start_us)
        sequence, now_us, done = 1, start_us, 0
        while done < compilations:
            recording = self._choose(plan.project)
            for event in recording.events:
                replayed = renamer.replay(event, sequence, now_us - recording.first_us)
                if replayed is None:
                    continue
                sequence += 1
                yield replayed
                done += isinstance(event, Compiled)
                if done >= compilations:
                    break
            now_us += recording.last_us - recording.first_us + GAP_US
        counters = {"stats": {"calls_captured": done, "unique_graphs": done}}
        yield SnapshotTaken(process_id, sequence, now_us, final=plan.state != "killed", counters=counters)

    def _process_started(self, plan: RunPlan, number: int, process_id: str, time_us: int) -> ProcessStarted:
        many = plan.processes > 1
        return ProcessStarted(
            process_id=process_id,
            sequence=0,
            time_us=time_us,
            run_id=plan.run_id,
            pid=1000 + number,
            rank=number if many else None,
            local_rank=number if many else None,
            world_size=plan.processes if many else None,
            argv=["python", plan.project.script],
            capabilities={"metrics": "ok", "events": "ok"},
            **plan.versions,
        )

    def _choose(self, project: Project) -> Recording:
        """Draw one of the project's recordings, and a breaking one while there are too few breaks."""
        progress = self.progress
        if progress.breaks < self.wanted_ratio * progress.compilations:
            return self.rng.choice(self.breaking)
        return self.recordings[self.rng.choice(project.recordings) % len(self.recordings)]


def replay(connection: sqlite3.Connection, path: str, arguments: argparse.Namespace) -> Progress:
    """Write the planned runs through the real ingest, in batches as a recorder would."""
    rng = random.Random(arguments.seed)
    recordings = read_recordings(find_sources(arguments.source))
    projects = make_projects(rng, len(recordings))
    replayer = Replayer(recordings, rng, MARGIN * arguments.breaks / arguments.compilations)
    ingestor = Ingestor(connection, path)
    first_us = arguments.until_us - arguments.days * DAY_US
    for plan in plan_runs(
        rng, projects, arguments.runs, round(MARGIN * arguments.compilations), first_us, arguments.until_us
    ):
        batch: list[Event] = []
        for event in replayer.run(plan):
            batch.append(event)
            if len(batch) >= 500:
                ingestor.ingest(plan.run_id, batch, now_us=event.time_us)
                batch = []
        ingestor.ingest(plan.run_id, batch, now_us=batch[-1].time_us if batch else plan.started_us)
        if plan.number % 20 == 0:
            checkpoint(connection)
            show_progress(plan.number, arguments.runs, replayer.progress)
    checkpoint(connection)
    return replayer.progress


def show_progress(number: int, runs: int, progress: Progress) -> None:
    """Say on a terminal how far the replay is."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{number + 1}/{runs} runs, {progress.compilations} compilations, {progress.breaks} breaks ")
        sys.stderr.flush()


def count_rows(connection: sqlite3.Connection) -> int:
    """Count the rows of every table."""
    names = [row[0] for row in connection.execute("select name from sqlite_schema where type = 'table'")]
    return sum(connection.execute(f"select count(*) from {name}").fetchone()[0] for name in names)


def main(argv: list[str] | None = None) -> int:
    """Make the database and print how fast it was."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("database", type=Path, metavar="OUT.db", help="a file that does not exist yet")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--compilations", type=int, default=100_000, help="CompilationMetrics records")
    parser.add_argument("--breaks", type=int, default=50_000)
    parser.add_argument("--days", type=int, default=180)
    parser.add_argument("--until-us", type=int, default=NEWEST_US, help="start of the newest run, microseconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--source", type=Path, action="append", default=[], help="a log, a spool or a folder of them (tests/data)"
    )
    arguments = parser.parse_args(argv)
    if arguments.database.exists():
        parser.error(f"{arguments.database} exists; give a new file")
    begin = time.perf_counter()
    connection = open_writer(arguments.database)
    migrate_connection(connection)
    progress = replay(connection, str(arguments.database), arguments)
    seconds = time.perf_counter() - begin
    rows = count_rows(connection)
    connection.close()
    size = arguments.database.stat().st_size
    print_table(
        f"Replay: {arguments.runs} runs, {progress.compilations} compilations, {progress.breaks} graph breaks",
        [
            Row("time", f"{seconds:.0f} s"),
            Row("events", f"{progress.events} ({progress.events / seconds:.0f}/s)"),
            Row("rows of all tables", f"{rows} ({rows / seconds:.0f}/s)"),
            Row("database", f"{size / 1e6:.0f} MB ({size / progress.compilations / 1000:.1f} KB a compilation)"),
        ],
        headings=("what", "measured", "", "", ""),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
