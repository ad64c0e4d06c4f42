"""Recompile causes across runs: their filter, columns and events, queried by queries.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from compileboard.app.compiles.run_queries import OUTCOME_SQL
from compileboard.app.core import fields
from compileboard.app.core.parameters import Parameter
from compileboard.app.reasons.queries import ReasonSubject
from compileboard.app.reasons.reason_trends import TrendGrid
from compileboard.app.runs.queries import RunFilter
from compileboard.collectors.contract.categories import BY_NAME
from compileboard.collectors.contract.records import TABLES


@dataclass(frozen=True)
class CauseFilter:
    runs: RunFilter
    text: Annotated[str | None, Parameter("q"), "Text to look for; capitals do not matter."] = None
    category: Annotated[
        str | None, Parameter(choices=tuple(BY_NAME)), "Kind of guard that failed."
    ] = None
    function: Annotated[str | None, "Part of `file:function`; capitals do not matter."] = None


@dataclass(frozen=True)
class RecompileCause(fields.CauseFields):
    """One recompile cause with its totals over the chosen runs.

    A cause is the smallest set of sources whose staying the same would have saved a recompile; each
    recompile counts for one cause. For `partial_count` of its recompiles not every failed guard is
    known, so more sources may have varied. `limit_count` is that of its function.
    """

    tables = ("recompile_causes", "run_causes")

    id: fields.ContentId
    fingerprint: fields.Fingerprint
    category: fields.Category
    source: fields.GuardSource
    reason: str
    function: fields.FunctionName
    file: fields.FileName
    recompile_count: fields.CauseRecompiles
    partial_count: fields.PartialRecompiles
    run_count: Annotated[fields.Count, "Runs that have it."]
    compile_us: fields.CompilesUs
    first_us: Annotated[fields.TimeUs, "Start of the first run that has it."]
    last_us: Annotated[fields.TimeUs, "Start of the last run that has it."]
    limit_count: Annotated[
        fields.Count, "Compiles of its function that reached the recompile limit."
    ]


@dataclass(frozen=True)
class CauseSummary:
    """Totals of recompile causes."""

    cause_count: Annotated[fields.Count, "Distinct causes."]
    function_count: Annotated[fields.Count, "Functions that were recompiled."]
    run_count: Annotated[fields.Count, "Runs that have any."]
    recompile_count: Annotated[fields.Count, "Recompiles for all of these causes."]
    partial_count: fields.PartialRecompiles
    compile_us: Annotated[fields.DurationUs | None, "Time of the compiles that had them."]
    limit_count: Annotated[
        fields.Count, "Compiles that reached the recompile limit, of all functions."
    ]


@dataclass(frozen=True)
class CauseEvent:
    """One recompile of a cause."""

    tables = ("recompiles",)

    id: Annotated[int, "`id` of the recompile."]
    run_id: fields.RunId
    process_id: fields.ProcessId
    sequence: fields.SequenceNumber
    compile_key: fields.CompileKey
    compile_id: fields.CompileId
    recompiled_from: fields.RecompiledFrom
    time_us: fields.EventTime
    cache_entry: str | None
    reason: str | None
    expected: str | None
    actual: str | None
    source_line: fields.SourceLine
    guard_line: int | None
    is_partial: bool
    compile_outcome: Annotated[str | None, "Outcome of the compile."]
    compile_us: fields.CompileUs


_EVENTS_SQL = f"""
select
  e.id, e.run_id, e.process_id, e.sequence, e.compile_key, e.compile_id, e.recompiled_from,
  e.time_us, e.cache_entry, e.reason, e.expected, e.actual, e.source_line, e.guard_line,
  e.is_partial,
  {OUTCOME_SQL} as compile_outcome, nullif(c.total_us, 0) as compile_us
from recompiles as e
left join compiles as c on c.id = e.compile_key
where e.cause_id = :id
order by e.id desc
limit :limit
"""  # noqa: S608 - our own names


def _summarize(grid: TrendGrid, scope: Mapping[str, int]) -> CauseSummary:
    recompile_count = sum(kind.count for kind in grid.kinds)
    return CauseSummary(
        **scope,
        cause_count=sum(kind.distinct_count for kind in grid.kinds),
        function_count=grid.function_count,
        recompile_count=recompile_count,
        partial_count=sum(kind.partial_count for kind in grid.kinds),
        compile_us=sum(kind.duration_us or 0 for kind in grid.kinds)
        or (None if recompile_count else 0),
    )


RECOMPILES = ReasonSubject(
    noun="cause of recompiles",
    table="recompile_causes",
    run_table="run_causes",
    key="cause_id",
    counts=("recompile_count", "partial_count"),
    columns=TABLES["recompile_causes"].select_sql("d", "id", "fingerprint", "function_id"),
    kind="d.category",
    exact={"category": "d.category"},
    texts=("d.source", "d.reason"),
    orders={
        "recompiles": "recompile_count",
        "runs": "run_count",
        "compile_time": "compile_us",
        "last": "last_us",
        "first": "first_us",
    },
    events_sql=_EVENTS_SQL,
    events_of_newest="cross join recompiles as e on e.run_id = newest.run_id and e.cause_id = :id",
    filter=CauseFilter,
    reason=RecompileCause,
    summarize=_summarize,
    event=CauseEvent,
    total="recompile_count",
    has_limits=True,
)
