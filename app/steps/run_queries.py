"""Read the timed steps of a run, and the compiles that ran in them."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from compileboard.app.core import fields
from compileboard.app.core.rows import list_page, list_rows
from compileboard.app.core.run_cache import cached_for_run
from compileboard.app.core.schema import PRIVATE
from compileboard.collectors.contract import shapes
from compileboard.collectors.contract.record_names import STEPS_TRACE
from compileboard.collectors.fixes.fix import TriedFix
from compileboard.collectors.store.reading import read_json
from compileboard.collectors.store.run_causes import list_tried_fixes, load_causes

MAX_WINDOWS = 100


@dataclass(frozen=True)
class StepWindow:
    """The timed steps of one process, as they were recorded."""

    tables = ("step_windows",)

    id: fields.RowId
    process_id: fields.ProcessId
    process: fields.ProcessName
    rank: fields.Rank
    wanted_count: int
    earlier_count: int
    device: str | None
    peak_bytes_per_s: int | None
    graphs: Annotated[list[shapes.StepGraph], "Compiled graphs that the steps called."]
    steps: Annotated[list[shapes.Step], "Each step, in parts."]
    traced: Annotated[
        shapes.TracedSteps | None,
        "What torch's profiler, which slows them, saw in the steps after.",
    ]
    trace_id: Annotated[int | None, "`id` of the artifact that has the trace."]
    time_us: fields.EventTime
    costs: shapes.WindowCosts | None = field(metadata=PRIVATE)

    @staticmethod
    def read_columns(columns: dict[str, Any]) -> dict[str, Any]:
        return columns | {
            "graphs": read_json(list[shapes.StepGraph], columns["graphs"]) or [],
            "steps": read_json(list[shapes.Step], columns["steps"]) or [],
            "traced": read_json(shapes.TracedSteps, columns["traced"]),
            "costs": read_json(shapes.WindowCosts, columns["costs"]),
        }


@dataclass(frozen=True)
class StepCompile:
    """A compile in a window, and the graph break at which it ended, if any."""

    process_id: str
    compile_id: str
    key: int
    function: str | None
    file: str | None
    line: int | None
    started_us: int
    resumed_at: int | None
    outcome: str | None
    break_id: fields.BreakId | None
    gb_id: str | None
    gb_type: str | None
    reason: str | None
    explanation: str | None
    source_line: str | None
    break_line: int | None
    fingerprint: str | None


WINDOWS_SQL = f"""
select
  w.id, w.process_id, p.rank, w.wanted_count, w.earlier_count, w.device, w.peak_bytes_per_s,
  w.graphs, w.steps, w.traced, w.time_us, w.costs,
  (select a.id from artifacts as a where a.process_id = w.process_id and a.sequence = w.sequence
    and a.name = '{STEPS_TRACE}') as trace_id
from step_windows as w
left join processes as p on p.id = w.process_id
where w.run_id = :run_id
  and (w.time_us, w.id) > (:after_us, :after_id)
order by w.time_us, w.id
limit :limit
"""  # noqa: S608 - our own name

COMPILES_SQL = """
select
  c.process_id, c.compile_id, c.id as key, f.name as function, f.file, c.line, c.started_us,
  c.resumed_at, b.outcome, b.distinct_id as break_id, d.gb_id, d.gb_type, d.reason, d.explanation,
  d.source_line, d.fingerprint,
  b.line as break_line
from compiles as c
left join functions as f on f.id = c.function_id
left join graph_breaks as b on b.compile_key = c.id
left join distinct_breaks as d on d.id = b.distinct_id
where c.run_id = :run_id
order by c.id, b.id
limit :limit
"""

list_windows = partial(list_page, StepWindow, WINDOWS_SQL)


def find_trials(connection: sqlite3.Connection, run_id: str) -> dict[str, TriedFix]:
    """Return the trial that measured a step without a graph break, by the break's fingerprint."""
    if not any(trial.step for trial in list_tried_fixes(connection, run_id)):
        return {}  # causes of a large run take a while
    causes = cached_for_run(connection, run_id, load_causes)
    return {
        fingerprint: cause.step_trial
        for cause in causes
        if cause.step_trial is not None
        for fingerprint in cause.fingerprints
    }


def list_compiles(connection: sqlite3.Connection, run_id: str) -> list[StepCompile]:
    return list_rows(StepCompile, COMPILES_SQL, connection, run_id, limit=20_000)
