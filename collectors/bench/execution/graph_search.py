"""Find the graph that a model fails by: the task once more, with each graph captured and compared with eager."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from compileboard.collectors.bench.execution.isolation import TaskOutcome, clear, run_task
from compileboard.collectors.bench.execution.run_writer import BenchRunWriter
from compileboard.collectors.bench.plan.tasks import PlannedTask, Task
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.contract.run_config import REPRO_VARIABLE
from compileboard.collectors.spool.crashes import promote_crashes
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.terminal.command_hints import collector_command

SUFFIX = "/graphs"  # of the second process's task
# What no graph is to blame for, or would only end the same way.
NOT_OF_A_GRAPH = frozenset(
    ("timeout", "infra_error", "model_fail_to_load", "eager_1st_run_fail", "eager_1st_run_OOM", "eager_2nd_run_fail")
)
WORDS = {"accuracy": "is wrong", "compile": "cannot be compiled", "runtime": "raises", "crash": "ends the process"}


def is_to_search(done: TaskOutcome) -> bool:
    """Return whether a graph may be to blame for a task's end."""
    outcome = done.outcome
    is_wrong = (outcome.accuracy or "").startswith("fail")
    return is_wrong or (outcome.status == "failed" and outcome.reason not in NOT_OF_A_GRAPH)


def search_graphs(
    run: BenchRunWriter,
    planned: PlannedTask,
    task: Task,
    folder: Path,
    environment: Callable[[str], Mapping[str, str]],
    cwd: str | None,
) -> list[str]:
    """Run a failed task again with its graphs captured; describe each that failed, with the command to go on with."""
    clear(folder)
    again = Task(task.experiment, task.ref, replace(task.settings, quick=True, repeat=1))
    variables = {**environment(SUFFIX), REPRO_VARIABLE: "crash,accuracy"}
    run_task(again, folder, variables, cwd=cwd, beat=run.beat)
    promote_crashes(run.folder, None)  # no other process of this run is there
    run.beat()
    database = run.manifest.database
    with closing(open_reader(database)) as connection:
        lines = list_failed_graphs(connection, run.manifest.run_id, planned.name + SUFFIX, database)
    if not lines:
        lines = ["none of its graphs fails or is wrong by itself"]
    return [f"{planned.name}: {line}" for line in lines]


def list_failed_graphs(connection: sqlite3.Connection, run_id: str, task: str, database: str) -> list[str]:
    """Describe the graphs that failed in a task's process, each with its number among those that were compiled."""
    rows = connection.execute(
        """
        with graphs as (
          select id, process_id,
            row_number() over (partition by process_id order by id) as number,
            count(*) over (partition by process_id) as graph_count
          from compiles
          where run_id = :run_id and outcome in ('compiled', 'failed')
        )
        select repros.id, repros.kind, repros.phase, repros.message, repros.node_count, number, graph_count
        from repros
        join processes on processes.id = repros.process_id
        left join graphs on graphs.id = repros.compile_key
        where repros.run_id = :run_id and processes.task = :task and repros.state = 'captured'
        order by repros.position
        """,
        {"run_id": run_id, "task": task},
    ).fetchall()
    return [
        f"graph {row['number']} of {row['graph_count']} {WORDS.get(row['kind'], row['kind'])} "
        f"({row['phase']}, {row['node_count']} operations): {first_line(row['message'])}; "
        + collector_command("repro", "minify", format_id(row["id"]), database=database)
        for row in rows
    ]


def first_line(message: str | None) -> str:
    """Return the first line of a message, no longer than a line of the terminal."""
    return next(iter((message or "no message").splitlines()), "")[:120]
