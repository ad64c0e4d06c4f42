"""Rank graph breaks, recompiles and re-recorded CUDA graphs by the time that they cost a run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.store.connection import read_value


@dataclass(frozen=True)
class Rerecordings:
    """The recordings of one function because no graph could be replayed, for one of torch's
    statuses.
    """

    function: str | None
    file: str | None
    line: int | None
    status: str
    count: int
    duration_us: int | None
    process_us: int | None  # The longest of all processes, because ranks record at the same time.


RECORDED_AGAIN_SQL = """
with by_process as (
  select
    c.function_id, min(c.line) as line, x.status, count(*) as count,
    sum(x.duration_us) as duration_us
  from cudagraphs as x
  left join compiles as c on c.id = x.compile_key
  where x.run_id = :run_id
    and x.status is not null
  group by c.function_id, x.status, x.process_id
)
select
  f.name as function, f.file, min(p.line) as line, p.status, sum(p.count) as count,
  sum(p.duration_us) as duration_us, max(p.duration_us) as process_us
from by_process as p
left join functions as f on f.id = p.function_id
group by p.function_id, p.status
order by sum(p.count) desc, p.function_id, p.status
limit :limit
"""
STEPS_SQL = """
select exists (select 1 from step_windows where run_id = :run_id and costs is not null)
"""
MAX_RECORDED_AGAIN = 200


def list_recorded_again(connection: sqlite3.Connection, run_id: str) -> list[Rerecordings]:
    values = {"run_id": run_id, "limit": MAX_RECORDED_AGAIN}
    return [Rerecordings(**dict(row)) for row in connection.execute(RECORDED_AGAIN_SQL, values)]


@dataclass(frozen=True)
class RunCost:
    """The total time that a graph break, a recompile or a re-recorded CUDA graph cost a run."""

    kind: Annotated[
        Literal["graph_break", "recompile", "recorded_again"],
        "Whether a graph break, a recompile or a re-recording costs it.",
    ]
    title: Annotated[str, "What happens."]
    number: Annotated[int | None, "`number` of the cause; null of CUDA graphs."]
    function: Annotated[str | None, "Qualified name of the function."]
    file: Annotated[str | None, "Its file: path in the repository, or module path."]
    line: Annotated[int | None, "Number of the line in the file, from 1."]
    once_us: Annotated[
        int | None, "Compile time, an estimate; of CUDA graphs, to record them again. Microseconds."
    ]
    step_us: Annotated[int | None, "Estimate of what it costs each step. Microseconds."]
    run_us: Annotated[int, "`once_us`, and `step_us` for all steps of the run. Microseconds."]


def list_run_costs(
    connection: sqlite3.Connection,
    run_id: str,
    causes: Iterable[Cause],
    name_status: Callable[[str], str] = str,
) -> list[RunCost]:
    """List costs, the largest first; empty if no step was timed."""
    if not read_value(connection, STEPS_SQL, {"run_id": run_id}):
        return []
    return rank_costs(causes, list_recorded_again(connection, run_id), name_status)


def rank_costs(
    causes: Iterable[Cause],
    recorded_again: Iterable[Rerecordings],
    name_status: Callable[[str], str] = str,
) -> list[RunCost]:
    costs = [
        RunCost(
            cause.kind,
            cause.title,
            cause.number,
            *(cause.function, cause.file, cause.line),
            *(None if cause.saved_us is None else max(0, cause.saved_us), cause.step_us),
            cause.run_us,
        )
        for cause in causes
        if cause.run_us is not None and cause.run_us > 0
    ]
    costs += [
        RunCost(
            "recorded_again",
            f"CUDA graph recorded again: {name_status(group.status)}",
            None,
            *(group.function, group.file, group.line),
            *(group.process_us, None, group.process_us),
        )
        for group in recorded_again
        if group.process_us
    ]
    return sorted(costs, key=lambda cost: -cost.run_us)
