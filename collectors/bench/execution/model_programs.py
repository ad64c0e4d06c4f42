"""The models of a recorded `bench` as programs, for `try` and `bench --verify`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from compileboard.collectors.bench import suites
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.trials.patches import RecordedProgram
from compileboard.start import shared_command

SHOWN_SQL = """
select p.task, d.fingerprint
from graph_breaks as b
join distinct_breaks as d on d.id = b.distinct_id
join processes as p on p.id = b.process_id
where b.run_id = :run_id
union
select p.task, u.fingerprint
from recompiles as r
join recompile_causes as u on u.id = r.cause_id
join processes as p on p.id = r.process_id
where r.run_id = :run_id
"""


def list_models(
    connection: sqlite3.Connection,
    program: RecordedProgram,
    causes: Sequence[Cause],
    plan: Sequence[Task],
    folder: Path,
) -> Iterator[tuple[RecordedProgram, list[Cause]]]:
    """Yield each task as a program (a short worker command), with the causes that no earlier task
    has.
    """
    shown = {tuple(row) for row in connection.execute(SHOWN_SQL, {"run_id": program.run_id})}
    left = list(causes)
    for task in plan:
        own = [cause for cause in left if any((task.name, f) in shown for f in cause.fingerprints)]
        if not own:
            continue
        left = [cause for cause in left if cause not in own]
        place = folder / f"{task.number:04}"
        place.mkdir(parents=True, exist_ok=True)
        task.change(quick=True, repeat=1, compile_repeats=1).write(place)
        worker = "compileboard.collectors.bench.worker.child:repeat"
        yield (
            replace(
                program,
                name=task.name,
                argv=tuple(shared_command(worker, str(os.getpid()), str(place))),
                command=task.name,
                environment={**program.environment, **suites.environment(task.ref.suite)},
                # Options for all models, and for more repeats.
                graph_break_count=None,
                recompile_count=None,
            ),
            own,
        )
