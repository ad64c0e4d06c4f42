"""Plan the runs of a replay: which project, when, where, how large, and how they end."""

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
from typing import Any

from benchmarks.common import Row, print_table
from benchmarks.store.recordings import Recording, Renamer, find_sources, read_recordings
from compileboard.collectors.contract.events import (
    Compiled,
    Event,
    GraphBroke,
    ProcessStarted,
    RunEnded,
    RunStarted,
    SnapshotTaken,
)
from compileboard.collectors.store.connection import checkpoint, open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection

DAY_US = 86_400_000_000
EPOCH_DAYS = 30
SUITES = {
    "nightly": ("bert", "gpt2", "llama", "t5", "resnet50", "unet"),
    "torchbench": ("hf_Bert", "hf_T5", "timm_resnet", "dlrm", "speech_transformer"),
    "release": ("serving_llm", "serving_vision", "trainer_ddp"),
    "scratch": ("train.py", "notebook", "repro.py"),
    None: ("adhoc.py",),
}
HOSTS = tuple(f"gpu-{number:02d}" for number in range(1, 9))
GPUS = (
    ("NVIDIA H200", 150_754_820_096, "9.0"),
    ("NVIDIA A100-SXM4-80GB", 85_899_345_920, "8.0"),
    ("NVIDIA L4", 24_152_899_584, "8.9"),
    None,
)
TORCHES = (
    ("2.9.1+cu128", "12.8"),
    ("2.10.0+cu129", "12.9"),
    ("2.11.0+cu130", "13.0"),
    ("2.13.0+cu130", "13.0"),
)
BRANCHES = ("main", "main", "main", "release", "dynamic-shapes", "fix/breaks")
STATES = ("finished",) * 90 + ("failed",) * 6 + ("killed",) * 3 + ("interrupted",)
ULID = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass(frozen=True)
class Project:
    """What the runs of one suite and name have in common."""

    suite: str | None
    name: str
    folder: str
    script: str
    recordings: list[int]  # which recorded programs it consists of
    weight: float


@dataclass
class RunPlan:
    """One run before its events are made."""

    number: int
    run_id: str
    recorder_id: str
    project: Project
    started_us: int
    epoch: int
    compilations: int
    processes: int
    state: str
    tags: dict[str, str]
    git: dict[str, Any]
    host: dict[str, Any]
    gpus: list[dict[str, Any]]
    versions: dict[str, str | None]
    rng: random.Random = field(repr=False)


def make_projects(rng: random.Random, recordings: int) -> list[Project]:
    """Make one project for each suite and name."""
    projects = []
    for suite, names in SUITES.items():
        for name in names:
            folder = f"{suite or 'adhoc'}_{name.removesuffix('.py')}".lower()
            parts = [rng.randrange(recordings) for _ in range(rng.randint(2, 4))]
            projects.append(
                Project(suite, name, folder, f"{folder}/train.py", parts, rng.uniform(0.5, 2.0))
            )
    return projects


def plan_runs(
    rng: random.Random,
    projects: list[Project],
    runs: int,
    compilations: int,
    first_us: int,
    last_us: int,
) -> Iterator[RunPlan]:
    """Yield the runs in the order of their start; sizes differ tenfold, as real runs' do."""
    starts = sorted(rng.randint(first_us, last_us) for _ in range(runs))
    sizes = [rng.lognormvariate(0, 0.8) for _ in range(runs)]
    scale = compilations / sum(sizes)
    for number, (started_us, size) in enumerate(zip(starts, sizes)):
        project = rng.choices(projects, [p.weight for p in projects])[0]
        state = "running" if number == runs - 1 else rng.choice(STATES)
        yield _plan_run(
            rng, number, project, started_us, first_us, max(1, round(size * scale)), state
        )


def _plan_run(
    rng: random.Random,
    number: int,
    project: Project,
    started_us: int,
    first_us: int,
    size: int,
    state: str,
) -> RunPlan:
    age = (started_us - first_us) // DAY_US
    torch_version, cuda = TORCHES[
        min(len(TORCHES) - 1, int(age / 46) if rng.random() < 0.9 else rng.randrange(4))
    ]
    gpu = rng.choice(GPUS)
    processes = rng.choice((1, 1, 1, 1, 2, 4)) if size >= 40 else 1
    described = (
        None if gpu is None else dict(zip(("name", "memory_bytes", "compute_capability"), gpu))
    )
    commit = f"{random.Random(f'{project.folder}{age // 2}').getrandbits(160):040x}"
    return RunPlan(
        number=number,
        run_id=_ulid(started_us // 1000, rng),
        recorder_id=f"{rng.getrandbits(128):032x}",
        project=project,
        started_us=started_us,
        epoch=int(age // EPOCH_DAYS),
        compilations=size,
        processes=processes,
        state=state,
        tags={
            "config": rng.choice(("default", "max-autotune", "dynamic")),
            "owner": rng.choice(("ci", "ana", "lee")),
        },
        git={
            "commit": commit,
            "branch": rng.choice(BRANCHES),
            "subject": f"Change number {age // 2} of {project.name}",
            "dirty": rng.random() < 0.2,
        },
        host={"name": rng.choice(HOSTS), "os": "Linux", "cpu_count": 64},
        gpus=[described] * processes if described else [],
        versions={
            "torch_version": torch_version,
            "cuda_version": cuda,
            "python_version": "3.12.3",
            "triton_version": "3.6.0",
        },
        rng=random.Random(rng.getrandbits(64)),
    )


def _ulid(now_ms: int, rng: random.Random) -> str:
    value = now_ms << 80 | rng.getrandbits(80)
    return "".join(ULID[value >> shift & 31] for shift in range(125, -5, -5))


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

    def __init__(
        self, recordings: list[Recording], rng: random.Random, wanted_ratio: float
    ) -> None:
        self.recordings = recordings
        self.rng = rng
        self.wanted_ratio = wanted_ratio  # breaks a compilation
        self.progress = Progress()
        self.breaking = [r for r in recordings if r.breaks / r.compilations >= wanted_ratio]
        if not self.breaking:
            raise SystemExit(
                "no recording has enough graph breaks for that many; ask for fewer --breaks"
            )

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
        yield SnapshotTaken(
            process_id, sequence, now_us, final=plan.state != "killed", counters=counters
        )

    def _process_started(
        self, plan: RunPlan, number: int, process_id: str, time_us: int
    ) -> ProcessStarted:
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
        """Choose one of the project's recordings, and a breaking one while there are too few
        breaks.
        """
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
        rng,
        projects,
        arguments.runs,
        round(MARGIN * arguments.compilations),
        first_us,
        arguments.until_us,
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
    """Print on a terminal how far the replay is."""
    if sys.stderr.isatty():
        sys.stderr.write(
            f"\r{number + 1}/{runs} runs, {progress.compilations} compilations, "
            f"{progress.breaks} breaks "
        )
        sys.stderr.flush()


def count_rows(connection: sqlite3.Connection) -> int:
    """Count the rows of every table."""
    names = [
        row[0] for row in connection.execute("select name from sqlite_schema where type = 'table'")
    ]
    return sum(connection.execute(f"select count(*) from {name}").fetchone()[0] for name in names)


def main(argv: list[str] | None = None) -> int:
    """Make the database and print how fast it was."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store.replay", description=__doc__)
    parser.add_argument(
        "database", type=Path, metavar="OUT.db", help="a file that does not exist yet"
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument(
        "--compilations", type=int, default=100_000, help="CompilationMetrics records"
    )
    parser.add_argument("--breaks", type=int, default=50_000)
    parser.add_argument("--days", type=int, default=180)
    parser.add_argument(
        "--until-us", type=int, default=NEWEST_US, help="start of the newest run, microseconds"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--source",
        type=Path,
        action="append",
        default=[],
        help="a log, a spool or a folder of them (tests/data)",
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
        (
            f"Replay: {arguments.runs} runs, {progress.compilations} compilations, "
            f"{progress.breaks} graph breaks"
        ),
        [
            Row("time", f"{seconds:.0f} s"),
            Row("events", f"{progress.events} ({progress.events / seconds:.0f}/s)"),
            Row("rows of all tables", f"{rows} ({rows / seconds:.0f}/s)"),
            Row(
                "database",
                f"{size / 1e6:.0f} MB ({size / progress.compilations / 1000:.1f} KB a compilation)",
            ),
        ],
        headings=("what", "measured", "", "", ""),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
