"""Progress of `make demo`, counted from recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.queries.engine import Engine
from compileboard.app.queries.fleet.runs import RunFilter, list_runs
from compileboard.app.queries.newest import RecorderClock
from compileboard.app.queries.run_rows import RunRow

SUITE, RUN_COUNT = "demo_history", 15  # those of examples/demo_history
MOST_RUNS = 200
PAUSE_US = 60_000_000  # between a version that ended and the next one's first record


@dataclass(frozen=True)
class DemoProgress:
    measured_count: int
    total_count: int
    left_us: int | None

    @property
    def note(self) -> str:
        if self.left_us is None:
            return f"{self.measured_count} of {self.total_count} runs measured"
        left_s = self.left_us / 1_000_000
        left = f"{left_s / 60:.0f} min" if left_s > 90 else f"{left_s:.0f} s"
        return f"{self.measured_count} of {self.total_count} runs measured, about {left} left"


def build_demo_progress(
    engine: Engine, newest: Sequence[RunRow], clock: RecorderClock
) -> DemoProgress | None:
    if not newest or newest[0].suite != SUITE or not _is_going_on(newest[0], clock):
        return None
    runs = list_runs(engine, RunFilter(suite=SUITE), pinned_first=False, limit=MOST_RUNS).rows
    backend = _name_backend(newest[0])  # another backend is another history
    measured = {
        (run.git_commit, run.name): run.duration_us or 0
        for run in runs
        if run.state == "finished" and _name_backend(run) == backend
    }
    left_count = RUN_COUNT - len(measured)
    if left_count <= 0:
        return None
    return DemoProgress(
        len(measured),
        RUN_COUNT,
        sum(measured.values()) * left_count // len(measured) if measured else None,
    )


def _is_going_on(run: RunRow, clock: RecorderClock) -> bool:
    ended_us = run.ended_us or run.heartbeat_us
    return clock.is_running(run.state, run.heartbeat_us) or clock.now_us - ended_us < PAUSE_US


def _name_backend(run: RunRow) -> str:
    return run.name.partition(" --")[0]
