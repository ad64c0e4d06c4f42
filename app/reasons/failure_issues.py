"""Failures across runs: their filter, columns, events and status, queried by queries.py."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from compileboard.app.core import fields
from compileboard.app.core.engine import Engine, SqliteEngine
from compileboard.app.core.parameters import Parameter
from compileboard.app.core.schema import one_of, published
from compileboard.app.reasons.queries import ReasonSubject
from compileboard.app.reasons.reason_trends import TrendGrid
from compileboard.app.runs.queries import RunFilter
from compileboard.collectors.contract.fingerprints import parse_id
from compileboard.collectors.contract.records import RECORDS

OPEN, REGRESSED, GONE = "open", "regressed", "gone"
STATUSES = (OPEN, REGRESSED, GONE)
MAX_PER_STATUS = 5_000  # a request to ClickHouse has room for some 6,000 ids
StatusOfIssue = Annotated[
    str | None,
    one_of(STATUSES),
    "`gone`: the newest runs of its programs lack it; `regressed`: it came back after a run of "
    "its program without it. Null if only trials have it.",
]


@dataclass(frozen=True)
class IssueFilter:
    runs: RunFilter
    text: Annotated[str | None, Parameter("q"), "Text to look for; capitals do not matter."] = None
    status: Annotated[
        str | None, Parameter(choices=STATUSES), "Whether its programs still have it."
    ] = None
    error: Annotated[str | None, "Type of the exception, whole."] = None
    operation: Annotated[str | None, "The operation, whole: `aten.add.Tensor`."] = None
    function: Annotated[str | None, "Part of `file:function`; capitals do not matter."] = None
    issue_ids: tuple[int, ...] | None = None  # those of `status`, from `choose_issues`


@dataclass(frozen=True)
class FailureIssue:
    """Failures with the same exception type, operation and message without values, over the
    chosen runs.
    """

    tables = ("failure_issues", "run_issues")

    id: fields.ContentId
    fingerprint: fields.Fingerprint
    error_type: str | None
    operation: str | None
    message: str | None
    function: Annotated[str | None, "Function it was first seen in."]
    file: fields.FileName
    failure_count: fields.Count
    run_count: Annotated[fields.Count, "Runs that have it."]
    compile_us: Annotated[fields.DurationUs | None, "Time of the compiles that failed."]
    first_us: Annotated[fields.TimeUs, "Start of the first run that has it."]
    last_us: Annotated[fields.TimeUs, "Start of the last run."]
    status: StatusOfIssue = None
    torch_versions: Annotated[tuple[str, ...], "Versions of torch of all runs that have it."] = ()
    gpu_names: Annotated[tuple[str, ...], "GPUs of all runs that have it."] = ()
    repro_count: Annotated[fields.Count, "Repros."] = 0

    @property
    @published
    def title(self) -> Annotated[str, "Exception type and operation."]:
        named = self.error_type or "Failure"
        return f"{named} in {self.operation}" if self.operation else named


@dataclass(frozen=True)
class IssueSummary:
    """Totals of failures."""

    issue_count: Annotated[fields.Count, "Distinct failures."]
    run_count: Annotated[fields.Count, "Runs that have any."]
    failure_count: Annotated[fields.Count, "Failures."]
    compile_us: Annotated[fields.DurationUs | None, "Time of the compiles that failed."]


@dataclass(frozen=True)
class IssueEvent:
    """One occurrence of a failure, in a compile of a run."""

    tables = ("failures",)

    id: Annotated[int, "Number of its row, or of its compile's record."]
    run_id: fields.RunId
    process_id: fields.ProcessId
    sequence: fields.SequenceNumber
    compile_key: fields.CompileKey
    compile_id: fields.CompileId
    phase: str
    message: str | None
    function: fields.FunctionName
    file: fields.FileName
    time_us: fields.EventTime


# A compile's failure is counted with its record, one of compiled code with itself.
_EVENTS_SQL = """
select
  x.id, x.run_id, x.process_id, x.sequence, x.compile_key, x.compile_id, x.phase, x.message,
  f.name as function, f.file, x.time_us
from (
  select
    id, run_id, process_id, sequence, compile_key, compile_id, phase, message, function_id, time_us
  from failures
  where issue_id = :id
  union all
  select
    c.id, c.run_id, c.process_id, c.sequence, c.compile_key, c.compile_id, 'compile',
    coalesce(
      (
        select max(o.message)
        from failures as o
        where o.compile_key = c.compile_key
          and o.phase = 'compile'
      ),
      c.fail_reason
    ),
    c.function_id, coalesce(c.start_us, 0)
  from compilations as c
  where c.issue_id = :id
) as x
left join functions as f on f.id = x.function_id
order by x.time_us desc, x.id desc
limit :limit
"""
_EVENTS_OF_NEWEST = """cross join (
    select run_id, process_id from failures where issue_id = :id
    union all
    select run_id, process_id from compilations where issue_id = :id
  ) as e on e.run_id = newest.run_id"""
# A run that ended early may have missed it, and a file of results recorded no compile.
_COULD_HAVE_IT = "r.state in ('finished', 'imported') and $t.compile_count > 0"
SEEN_SQL = """
select b.issue_id, b.run_id
from $stored(run_issues) as b
where true
order by b.issue_id, b.run_id
limit 2000000
"""
RUNS_SQL = f"""
select r.id, r.suite, r.name, r.started_us, {_COULD_HAVE_IT} as could_have_it
from runs as r
$totals
where r.source <> 'trial'
  and ($t.failure_count > 0 or {_COULD_HAVE_IT})
order by r.started_us, r.id
limit 200000
"""  # noqa: S608 - our own names
VARIANTS_SQL = """
select b.issue_id as id, r.torch_version, r.gpu_name
from runs as r
join $stored(run_issues) as b on $of(b, r)
where r.source <> 'trial'
  and b.issue_id $in(:ids)
group by b.issue_id, r.torch_version, r.gpu_name
limit 20000
"""
REPROS_SQL = """
select p.issue_id, count(*) as repro_count
from repros as p
join runs as r on r.id = p.run_id
where p.issue_id $in(:ids)
  and p.state = 'captured'
  and r.source <> 'trial'
group by p.issue_id
limit 20000
"""


def choose_issues(engine: Engine, selected: IssueFilter) -> IssueFilter:
    """Add to a filter the ids of the failures with its status, at most the newest 5,000."""
    if selected.status is None:
        return selected
    seen = find_statuses(engine)
    chosen = [issue_id for issue_id, status in seen.items() if status == selected.status]
    return replace(selected, issue_ids=tuple(chosen[:MAX_PER_STATUS]))


def find_statuses(engine: Engine, ids: Sequence[int] | None = None) -> dict[int, str]:
    """Return the status of each failure, the last seen failure first."""
    programs: dict[tuple[str | None, str], list[int]] = defaultdict(list)
    runs: dict[str, tuple[tuple[str | None, str], int, int]] = {}
    for run_id, suite, name, started_us, could_have_it in engine.stream(RUNS_SQL):
        runs[run_id] = (suite, name), started_us, int(could_have_it or 0)
        if could_have_it:
            programs[suite, name].append(started_us)
    seen: dict[int, dict[tuple[str | None, str], _ProgramOccurrences]] = defaultdict(dict)
    sql = SEEN_SQL if ids is None else SEEN_SQL.replace("true", "b.issue_id $in(:ids)")
    for issue_id, run_id in engine.stream(sql, {"ids": ids or []}):
        if run_id not in runs:  # a trial, or deleted
            continue
        program, started_us, could_have_it = runs[run_id]
        of_program = seen[issue_id].get(program)
        if of_program is None:
            seen[issue_id][program] = _ProgramOccurrences(started_us, started_us, could_have_it)
        else:
            of_program.first_us = min(of_program.first_us, started_us)
            of_program.last_us = max(of_program.last_us, started_us)
            of_program.complete_count += could_have_it
    found = []
    for issue_id, by_program in seen.items():
        judged = {_judge(it, programs[program]) for program, it in by_program.items()}
        status = next(it for it in (REGRESSED, OPEN, GONE) if it in judged)
        found.append((-max(it.last_us for it in by_program.values()), issue_id, status))
    return {issue_id: status for _last, issue_id, status in sorted(found)}


@dataclass
class _ProgramOccurrences:
    """The runs of one program that have a failure."""

    first_us: int
    last_us: int
    complete_count: int


def _judge(seen: _ProgramOccurrences, starts: Sequence[int]) -> str:
    """Return the status in one program. `starts` has the start times of its complete runs, in
    order.
    """
    first, after = bisect_left(starts, seen.first_us), bisect_right(starts, seen.last_us)
    if after < len(starts):
        return GONE
    return REGRESSED if after - first > seen.complete_count else OPEN


def describe_issues(
    engine: Engine, board: sqlite3.Connection, issues: Sequence[FailureIssue]
) -> tuple[FailureIssue, ...]:
    """Add status, versions, GPUs and number of repros."""
    ids = [parse_id(issue.id) for issue in issues]
    if not ids:
        return ()
    statuses = find_statuses(engine, ids)
    versions: dict[int, set[str]] = defaultdict(set)
    gpus: dict[int, set[str]] = defaultdict(set)
    for issue_id, version, gpu in engine.rows(VARIANTS_SQL, {"ids": ids}):
        versions[issue_id] |= {version} - {None}
        gpus[issue_id] |= {gpu} - {None}
    repros = dict(map(tuple, SqliteEngine(board).rows(REPROS_SQL, {"ids": ids})))
    return tuple(
        replace(
            issue,
            status=statuses.get(issue_id),
            torch_versions=tuple(sorted(versions[issue_id])),
            gpu_names=tuple(sorted(gpus[issue_id])),
            repro_count=repros.get(issue_id, 0),
        )
        for issue_id, issue in zip(ids, issues)
    )


def _summarize(grid: TrendGrid, scope: Mapping[str, int]) -> IssueSummary:
    return IssueSummary(
        issue_count=sum(kind.distinct_count for kind in grid.kinds),
        run_count=scope["run_count"],
        failure_count=sum(kind.count for kind in grid.kinds),
        compile_us=sum(kind.duration_us or 0 for kind in grid.kinds) or (None if grid.kinds else 0),
    )


FAILURES = ReasonSubject(
    noun="failure",
    table="failure_issues",
    run_table="run_issues",
    key="issue_id",
    counts=("failure_count",),
    columns=RECORDS["failure_issues"].select_sql("d", "id", "fingerprint", "function_id"),
    kind="coalesce(d.error_type, '')",
    exact={"error": "d.error_type", "operation": "d.operation"},
    texts=("d.error_type", "d.operation", "d.message"),
    orders={
        "last": "last_us",
        "failures": "failure_count",
        "runs": "run_count",
        "compile_time": "compile_us",
        "first": "first_us",
    },
    events_sql=_EVENTS_SQL,
    events_of_newest=_EVENTS_OF_NEWEST,
    filter=IssueFilter,
    reason=FailureIssue,
    summarize=_summarize,
    event=IssueEvent,
    total="failure_count",
    has_causes=False,
    has_statuses=True,
)
