"""Reasons for CUDA graph re-recordings: their filter, columns and events, queried by queries.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from compileboard.app.core import fields
from compileboard.app.core.labels import CUDA_GRAPH_STATUSES, describe_cuda_graph_status
from compileboard.app.core.parameters import Parameter
from compileboard.app.core.schema import published
from compileboard.app.reasons.queries import ReasonSubject
from compileboard.app.reasons.reason_trends import TrendGrid
from compileboard.app.runs.queries import RunFilter
from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.fixes.cudagraph_fixes import suggest_recorded_again
from compileboard.collectors.fixes.fix import Fix

Status = Annotated[str, "Reason, in torch's words, why no graph matched."]
RecordingUs = Annotated[fields.DurationUs | None, "Time to record them."]


@dataclass(frozen=True)
class RerecordingFilter:
    runs: RunFilter
    text: Annotated[str | None, Parameter("q"), "Text to look for; capitals do not matter."] = None
    status: Annotated[
        str | None,
        Parameter(choices=tuple(CUDA_GRAPH_STATUSES)),
        "Reason, in torch's words, why no graph matched.",
    ] = None
    function: Annotated[str | None, "Part of `file:function`; capitals do not matter."] = None


@dataclass(frozen=True)
class RerecordingReason:
    """A reason for re-recording one function's CUDA graphs, over the chosen runs."""

    tables = ("rerecording_reasons", "run_rerecordings")

    id: fields.ContentId
    fingerprint: fields.Fingerprint
    status: Status
    inputs: str | None
    source_line: str | None
    function: fields.FunctionName
    file: fields.FileName
    rerecording_count: fields.Count
    run_count: Annotated[fields.Count, "Runs that have it."]
    duration_us: RecordingUs
    first_us: Annotated[fields.TimeUs, "Start of the first run that has it."]
    last_us: Annotated[fields.TimeUs, "Start of the last run that has it."]

    @property
    @published
    def title(self) -> Annotated[str, "The reason in words."]:
        return describe_cuda_graph_status(self.status).word

    @property
    @published
    def meaning(self) -> Annotated[str, "Meaning of the reason."]:
        return describe_cuda_graph_status(self.status).meaning

    @property
    def fixes(self) -> tuple[Fix, ...]:
        return suggest_recorded_again(self.status)


@dataclass(frozen=True)
class RerecordingSummary:
    """Totals of CUDA graph re-recordings."""

    reason_count: Annotated[fields.Count, "Distinct reasons of re-recordings."]
    function_count: Annotated[fields.Count, "Functions whose CUDA graphs were recorded again."]
    run_count: Annotated[fields.Count, "Runs that have any."]
    rerecording_count: Annotated[fields.Count, "CUDA graphs recorded again."]
    duration_us: RecordingUs


@dataclass(frozen=True)
class Rerecording:
    """One occurrence of a CUDA graph re-recording, in a run."""

    tables = ("cudagraphs",)

    id: Annotated[int, "`id` of the recording."]
    run_id: fields.RunId
    process_id: fields.ProcessId
    sequence: fields.SequenceNumber
    compile_key: fields.CompileKey
    compile_id: fields.CompileId
    mode: str | None
    graph: int | None
    parent_graph: int | None
    depth: int
    duration_us: int | None
    time_us: fields.EventTime


_EVENTS_SQL = """
select
  id, run_id, process_id, sequence, compile_key, compile_id, mode, graph, parent_graph, depth,
  duration_us, time_us
from cudagraphs
where reason_id = :id
order by id desc
limit :limit
"""


def _summarize(grid: TrendGrid, scope: Mapping[str, int]) -> RerecordingSummary:
    return RerecordingSummary(
        reason_count=sum(kind.distinct_count for kind in grid.kinds),
        function_count=grid.function_count,
        run_count=scope["run_count"],
        rerecording_count=sum(kind.count for kind in grid.kinds),
        duration_us=sum(kind.duration_us or 0 for kind in grid.kinds)
        or (None if grid.kinds else 0),
    )


RERECORDINGS = ReasonSubject(
    noun="reason to record CUDA graphs again",
    table="rerecording_reasons",
    run_table="run_rerecordings",
    key="reason_id",
    counts=("rerecording_count",),
    columns=TABLES["rerecording_reasons"].select_sql("d", "id", "fingerprint", "function_id"),
    kind="d.status",
    exact={"status": "d.status"},
    texts=("d.status", "d.inputs", "d.source_line"),
    orders={
        "rerecordings": "rerecording_count",
        "runs": "run_count",
        "time": "duration_us",
        "last": "last_us",
        "first": "first_us",
    },
    events_sql=_EVENTS_SQL,
    events_of_newest=(
        "cross join cudagraphs as e on e.run_id = newest.run_id and e.reason_id = :id"
    ),
    filter=RerecordingFilter,
    reason=RerecordingReason,
    summarize=_summarize,
    event=Rerecording,
    total="cudagraph_rerecording_count",
    time="duration_us",
    has_causes=False,
)
