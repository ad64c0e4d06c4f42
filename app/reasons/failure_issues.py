"""Failures across runs: their filter, columns, events and status, queried by queries.py."""

from __future__ import annotations

import sqlite3
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
from compileboard.app.reasons.sums import DatabaseState, read_database_state
from compileboard.app.runs.queries import RunFilter
from compileboard.collectors.contract.fingerprints import parse_id
from compileboard.collectors.contract.records import TABLES

OPEN, REGRESSED, GONE = "open", "regressed", "gone"
STATUSES = (GONE, OPEN, REGRESSED)  # of several programs, the last one counts
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
    last_us: Annotated[fields.TimeUs, "Start of the last run that has it."]
    status: StatusOfIssue = None
    torch_versions: Annotated[tuple[str, ...], "Versions of torch of all runs that have it."] = ()
    gpu_names: Annotated[tuple[str, ...], "GPUs of all runs that have it."] = ()
    repro_count: Annotated[fields.Count, "Repros of this failure, in all runs."] = 0

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
    failure_count: Annotated[fields.Count, "Occurrences of all of them."]
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
# Of a program's complete runs in order of time: how many there are, how many started up to a run's
# start, and how many at the same time.
STATUSES_SQL = f"""
with candidates as (
  select
    r.id as id, $pub(r) as pub, r.suite as suite, r.name as name, r.started_us as started_us,
    coalesce({_COULD_HAVE_IT}, 0) as could_have_it
  from runs as r
  $totals
  where r.source <> 'trial'
), program_runs as materialized (
  select
    id, pub, started_us, could_have_it, dense_rank() over (order by suite, name) as program,
    sum(could_have_it) over (partition by suite, name) as all_count,
    sum(could_have_it) over (partition by suite, name order by started_us) as until_count,
    sum(could_have_it) over (partition by suite, name, started_us) as same_count
  from candidates
)
select issue_id, max(status) as worst_status, max(program_last_us) as last_us
from (
  select
    b.issue_id as issue_id, max(p.started_us) as program_last_us,
    case
      when max(p.until_count) < max(p.all_count) then {STATUSES.index(GONE)}
      when max(p.until_count) - min(p.until_count - p.same_count) > sum(p.could_have_it)
        then {STATUSES.index(REGRESSED)}
      else {STATUSES.index(OPEN)}
    end as status
  from program_runs as p
  join $stored(run_issues) as b on $of(b, p)
  where true
  group by b.issue_id, p.program
) as judged
group by issue_id
having :status is null or max(status) = :status
order by last_us desc, issue_id
limit :limit
"""  # noqa: S608 - our own names
STATUSES_OF_SQL = STATUSES_SQL.replace("where true", "where b.issue_id $in(:ids)")
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


# By status: the state of the database, and the ids that were chosen in it.
_chosen: dict[str, tuple[DatabaseState, tuple[int, ...]]] = {}


def choose_issues(engine: Engine, selected: IssueFilter) -> IssueFilter:
    """Add to a filter the ids of the failures with its status, at most the newest 5,000."""
    if selected.status is None:
        return selected
    state = read_database_state(engine)
    known = _chosen.get(selected.status)
    if known and known[0] == state:
        return replace(selected, issue_ids=known[1])
    values = {"status": STATUSES.index(selected.status), "limit": MAX_PER_STATUS}
    rows = engine.stream(STATUSES_SQL, values)
    issue_ids = tuple(issue_id for issue_id, _status, _last_us in rows)
    if state:
        _chosen[selected.status] = state, issue_ids
    return replace(selected, issue_ids=issue_ids)


def find_statuses(engine: Engine, ids: Sequence[int]) -> dict[int, str]:
    """Return the status of each failure that runs have, other than trials."""
    values = {"ids": ids, "status": None, "limit": len(ids)}
    rows = engine.stream(STATUSES_OF_SQL, values)
    return {issue_id: STATUSES[status] for issue_id, status, _last in rows}


def describe_issues(
    engine: Engine,
    board: sqlite3.Connection,
    issues: Sequence[FailureIssue],
    status: str | None = None,
) -> tuple[FailureIssue, ...]:
    """Add status, versions, GPUs and number of repros. `status` is that of all, if it is known."""
    ids = [parse_id(issue.id) for issue in issues]
    if not ids:
        return ()
    statuses = dict.fromkeys(ids, status) if status else find_statuses(engine, ids)
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
    columns=TABLES["failure_issues"].select_sql("d", "id", "fingerprint", "function_id"),
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
