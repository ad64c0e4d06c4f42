"""Find the graph that makes a model fail, by running the task again and capturing each graph.

Each graph is compared with eager and float64; failing graphs are minified within a time limit.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compileboard.collectors.bench.execution.run_writer import BenchRunWriter
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.contract.run_config import REPRO_VARIABLE
from compileboard.collectors.record.crashes import promote_crashes
from compileboard.collectors.record.program import run_to_deadline, start_session
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.terminal.progress_line import read_graph_checks
from compileboard.collectors.terminal.values import collector_command, first_line
from compileboard.start import own_command

GRAPHS = "graphs"
MINIFY_LIMIT_S = 300.0  # per graph
MAX_MINIFIED = 2  # graphs per task
PATIENCE_S = 60.0  # beyond its limit, for a search to end its last trial
# Failures that no graph causes, or that would only repeat.
NOT_OF_A_GRAPH = frozenset(
    (
        "timeout",
        "infra_error",
        "model_fail_to_load",
        "eager_1st_run_fail",
        "eager_1st_run_OOM",
        "eager_2nd_run_fail",
    )
)
WORDS = {
    "accuracy": "is wrong",
    "compile": "cannot be compiled",
    "runtime": "raises",
    "crash": "ends the process",
}


# Runs a task again in a folder of this name, with these variables.
RunAgain = Callable[[Task, str, Mapping[str, str]], ExperimentOutcome]


@dataclass(frozen=True)
class FailingGraph:
    repro_id: str
    kind: str
    phase: str | None
    message: str | None
    node_count: int | None
    number: int | None
    graph_count: int | None

    def describe(self) -> str:
        message = first_line(self.message or "no message", 120)
        return (
            f"graph {self.number} of {self.graph_count} {WORDS.get(self.kind, self.kind)} "
            f"({self.phase}, {self.node_count} operations): {message}"
        )


def needs_graph_search(outcome: ExperimentOutcome) -> bool:
    is_wrong = (outcome.accuracy or "").startswith("fail")
    return is_wrong or (outcome.status == "failed" and outcome.reason not in NOT_OF_A_GRAPH)


def search_graphs(
    run: BenchRunWriter, task: Task, run_again: RunAgain, folder: Path, cwd: str | None
) -> tuple[list[str], list[dict[str, Any]]]:
    """Run a failed task again with its graphs captured, and minify those that fail.

    Returns a line for each failing graph with the next command, and the minimal programs as facts
    of the result.
    """
    once = task.change(quick=True, repeat=1, compile_repeats=1, cold_start_latency=True)
    run_again(once, GRAPHS, {REPRO_VARIABLE: "crash,accuracy"})
    name = f"{task.name}/{GRAPHS}"  # The name of the second process's task.
    promote_crashes(run.folder, None)  # no other process of this run is alive
    run.beat()
    database = run.manifest.database
    with closing(open_reader(database)) as connection:
        graphs = list_failed_graphs(connection, run.manifest.run_id, name)
        verdicts, _, reasons = read_graph_checks(connection, run.manifest.run_id, name)
    if not graphs:
        return [f"{task.name}: {explain_no_failing_graph(verdicts, reasons)}"], []
    lines, programs = [], []
    for position, graph in enumerate(graphs):
        answer = None
        if position < MAX_MINIFIED:
            limit_s = min(MINIFY_LIMIT_S, task.settings.timeout_s)
            answer = minify_graph(graph, run, folder / GRAPHS, cwd, limit_s)
        if answer is not None:
            programs.append(describe_minimal(graph, answer, with_program=run.config.keep_source))
        smaller = f" → {programs[-1]['node_count']} operations" if answer is not None else ""
        minify = collector_command("repro", "minify", graph.repro_id, database=database)
        server = (
            run.manifest.server
        )  # that stores the graph later; the database beside it is removed
        where = f"{server}/repros/{graph.repro_id}" if server else minify
        lines.append(f"{task.name}: {graph.describe()}{smaller}; {where}")
    return lines, programs


def explain_no_failing_graph(verdicts: Mapping[str, int], reasons: Iterable[str]) -> str:
    """Return a sentence that no graph fails alone, and why some were not compared."""
    if why := ", ".join(sorted(reasons)):
        compared = (
            "some graphs are right, others were not"
            if verdicts.get("same")
            else "none of its graphs was"
        )
        return f"{compared} compared: {why}"
    return "none of its graphs fails or is wrong by itself"


def minify_graph(
    graph: FailingGraph,
    run: BenchRunWriter,
    folder: Path,
    cwd: str | None,
    limit_s: float,
) -> dict[str, Any] | None:
    limits = ["--max-time", str(limit_s), "--json"]
    words = ["repro", "minify", graph.repro_id, "--db", run.manifest.database, *limits]
    answer = folder / "minified.json"
    with answer.open("wb") as output:
        child = start_session(
            own_command("compileboard.collectors", *words),
            output,
            stderr=subprocess.DEVNULL,
            env=dict(run.environment),
            cwd=cwd,
        )
    run_to_deadline(child, time.monotonic() + limit_s + PATIENCE_S, run.beat)
    if child.returncode != 0:
        return None
    body: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8", errors="surrogatepass"))
    return body


def describe_minimal(
    graph: FailingGraph, answer: Mapping[str, Any], *, with_program: bool
) -> dict[str, Any]:
    minified = answer["answer"]
    return {
        "repro": graph.repro_id,
        "graph": graph.number,
        "graph_count": graph.graph_count,
        "status": minified["status"],
        "failure": minified["failure"],
        "node_count_before": minified["nodes_before"],
        "node_count": minified["nodes_after"],
        "operations": list(minified["operations"]),
        "program": answer["program"] if with_program else None,
    }


def list_failed_graphs(
    connection: sqlite3.Connection, run_id: str, task: str
) -> list[FailingGraph]:
    rows = connection.execute(
        """
        with graphs as (
          select id, process_id,
            row_number() over (partition by process_id order by id) as number,
            count(*) over (partition by process_id) as graph_count
          from compiles
          where run_id = :run_id and outcome in ('compiled', 'failed')
        )
        select repros.id, repros.kind, repros.phase, repros.message, repros.node_count, number,
        graph_count
        from repros
        join processes on processes.id = repros.process_id
        left join graphs on graphs.id = repros.compile_key
        where repros.run_id = :run_id and processes.task = :task and repros.state = 'captured'
        order by repros.position
        """,
        {"run_id": run_id, "task": task},
    ).fetchall()
    return [FailingGraph(format_id(row["id"]), *tuple(row)[1:]) for row in rows]
