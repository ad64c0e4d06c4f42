"""Distinct graph breaks across runs: their filter, columns and events, queried by queries.py."""

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


@dataclass(frozen=True)
class BreakFilter:
    runs: RunFilter
    text: Annotated[str | None, Parameter("q"), "Text to look for; capitals do not matter."] = None
    gb_id: Annotated[
        str | None,
        Parameter("gb", read=lambda _name, text: text.upper()),
        "torch's id of a kind of graph break: `GB0059`.",
    ] = None
    kind: Annotated[str | None, "torch's name of a kind of graph break, whole."] = None
    function: Annotated[str | None, "Part of `file:function`; capitals do not matter."] = None


@dataclass(frozen=True)
class DistinctBreak(fields.TitledBreak):
    """A distinct graph break with its totals over the chosen runs."""

    tables = ("distinct_breaks", "run_breaks")

    id: fields.ContentId
    fingerprint: fields.Fingerprint
    gb_id: fields.GbId
    gb_type: fields.GbType
    reason: fields.BreakReason
    explanation: fields.Explanation
    hints: fields.Hints
    function: fields.FunctionName
    file: fields.FileName
    line: fields.LineNumber
    source_line: fields.SourceLine
    break_count: int
    run_count: Annotated[fields.Count, "Runs that have it."]
    compile_us: fields.CompilesUs
    first_us: Annotated[fields.TimeUs, "Start of the first run that has it."]
    last_us: Annotated[fields.TimeUs, "Start of the last run that has it."]

    @property
    def kind(self) -> str:
        return self.gb_type or self.reason.partition("\n")[0]


@dataclass(frozen=True)
class BreakSummary:
    """Totals of graph breaks."""

    distinct_count: Annotated[fields.Count, "Distinct graph breaks."]
    function_count: Annotated[fields.Count, "Functions that have any."]
    run_count: Annotated[fields.Count, "Runs that have any."]
    break_count: Annotated[fields.Count, "Occurrences of graph breaks."]
    compile_us: Annotated[fields.DurationUs | None, "Time of the compiles that had them."]


@dataclass(frozen=True)
class BreakEvent:
    """One occurrence of a graph break, in a compile of a run."""

    tables = ("graph_breaks",)

    id: Annotated[int, "Number of the row."]
    run_id: fields.RunId
    process_id: fields.ProcessId
    sequence: fields.SequenceNumber
    compile_key: fields.CompileKey
    compile_id: fields.CompileId
    line: fields.LineNumber
    outcome: Annotated[str, "Outcome of the graph break."]
    time_us: fields.EventTime
    compile_outcome: Annotated[str | None, "Outcome of the compile."]
    compile_us: fields.CompileUs


_EVENTS_SQL = f"""
select
  g.id, g.run_id, g.process_id, g.sequence, g.compile_key, g.compile_id, g.line, g.outcome,
  g.time_us,
  {OUTCOME_SQL} as compile_outcome, nullif(c.total_us, 0) as compile_us
from graph_breaks as g
left join compiles as c on c.id = g.compile_key
where g.distinct_id = :id
order by g.time_us desc, g.id desc
limit :limit
"""  # noqa: S608 - our own names


def _summarize(grid: TrendGrid, scope: Mapping[str, int]) -> BreakSummary:
    return BreakSummary(
        distinct_count=sum(kind.distinct_count for kind in grid.kinds),
        function_count=grid.function_count,
        run_count=scope["run_count"],
        break_count=sum(kind.count for kind in grid.kinds),
        compile_us=sum(kind.duration_us or 0 for kind in grid.kinds) or (None if grid.kinds else 0),
    )


GRAPH_BREAKS = ReasonSubject(
    noun="graph break",
    table="distinct_breaks",
    run_table="run_breaks",
    key="distinct_id",
    counts=("break_count",),
    columns=f"{fields.BREAK_COLUMNS}, d.line",
    kind=fields.BREAK_KIND,
    gb_id="d.gb_id",
    exact={"gb_id": "d.gb_id", "kind": fields.BREAK_KIND},
    texts=("d.gb_type", "d.reason", "d.explanation", "d.source_line"),
    orders={
        "breaks": "break_count",
        "runs": "run_count",
        "compile_time": "compile_us",
        "last": "last_us",
        "first": "first_us",
    },
    events_sql=_EVENTS_SQL,
    events_of_newest=(
        "cross join graph_breaks as e on e.run_id = newest.run_id and e.distinct_id = :id"
    ),
    filter=BreakFilter,
    reason=DistinctBreak,
    summarize=_summarize,
    event=BreakEvent,
)
