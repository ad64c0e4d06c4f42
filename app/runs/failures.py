"""Problems of a run: failures, unfinished compiles, CUDA graph skips."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from compileboard.app.compiles.run_queries import OUTCOME_SQL, Outcome
from compileboard.app.core import fields
from compileboard.app.core.rows import list_page, list_rows, make_row
from compileboard.app.runs.rows import RunRow
from compileboard.collectors.fixes.cudagraph_fixes import suggest_skipped
from compileboard.collectors.fixes.fix import Fix
from compileboard.collectors.store.reading import read_body
from compileboard.collectors.store.runs import add_process_names


@dataclass(frozen=True)
class FailureRow:
    """An exception that a compile or compiled code raised, or that ended the program.

    `outcome` is that of the compile; on the compile's own page it may also be skipped, if dynamo
    continued. A repeated runtime failure is counted, not listed.
    """

    tables = ("failures",)

    id: fields.RowId
    process_id: fields.ProcessId
    process: fields.ProcessName
    rank: fields.Rank
    compile_key: fields.CompileKey
    compile_id: fields.CompileId
    outcome: Outcome | None
    phase: str
    occurrence_count: int
    ended_program: bool
    function: fields.FunctionName
    file: fields.FileName
    line: fields.LineNumber
    error_type: str | None
    message: str | None
    time_us: fields.EventTime
    text: Annotated[str, "The traceback."]
    repro_id: Annotated[fields.ContentId | None, "`id` of the repro that it left."]
    issue_id: Annotated[
        fields.ContentId | None,
        "`id` of the failure across runs; null for a frame that is skipped.",
    ]

    @staticmethod
    def read_columns(columns: dict[str, Any]) -> dict[str, Any]:
        return columns | {"text": read_body(columns.pop("body")).get("text") or ""}


@dataclass(frozen=True)
class FailureGroup:
    error_type: str | None
    message: str | None
    function: str | None
    file: str | None
    line: int | None
    compile_count: int


@dataclass(frozen=True)
class CacheLookup:
    """A lookup in a compile cache, with its result."""

    tables = ("cache_lookups",)

    id: fields.RowId
    process_id: fields.ProcessId
    process: fields.ProcessName
    rank: fields.Rank
    compile_key: fields.CompileKey
    compile_id: fields.CompileId
    function: fields.FunctionName
    cache: str
    result: str
    key: str | None
    reason: str | None
    time_taken_us: int | None
    time_saved_us: int | None
    time_us: fields.EventTime


@dataclass(frozen=True)
class CacheResult:
    """Number of lookups of one cache with the same result and reason."""

    cache: Annotated[str, "fx_graph or aot_autograd."]
    result: Annotated[str, "hit, miss or bypass."]
    reason: Annotated[str | None, "torch's reason."]
    lookup_count: Annotated[fields.Count, "Lookups with this result and reason."]
    time_taken_us: Annotated[fields.DurationUs | None, "Time that they took."]
    time_saved_us: Annotated[fields.DurationUs | None, "Time saved, as torch reports it."]


@dataclass(frozen=True)
class CudagraphSkip:
    """One CUDA graph that inductor could not use."""

    tables = ("cudagraph_skips",)

    id: fields.RowId
    process_id: fields.ProcessId
    process: fields.ProcessName
    rank: fields.Rank
    compile_key: fields.CompileKey
    compile_id: fields.CompileId
    function: fields.FunctionName
    file: fields.FileName
    line: fields.LineNumber
    code: fields.SourceLine
    reason: str
    time_us: fields.EventTime

    @property
    def fixes(self) -> tuple[Fix, ...]:
        return suggest_skipped(self.reason, self.code)


def _page_statements(columns: str, table: str, extra: str = "") -> tuple[str, str]:
    select = f"""
select
  x.id, x.process_id, coalesce(c.rank, p.rank) as rank, x.compile_key, x.compile_id, {columns},
  x.time_us
from {table} as x
left join compiles as c on c.id = x.compile_key
left join functions as f on f.id = c.function_id
left join processes as p on p.id = x.process_id
{extra}
"""  # noqa: S608  own texts only
    run = f"""
{select}
where x.run_id = :run_id
  and (x.time_us, x.id) > (:after_us, :after_id)
order by x.time_us, x.id
limit :limit
"""
    compile_ = f"""
{select}
where x.compile_key = :key
order by x.time_us, x.id
limit :limit
"""
    return run, compile_


FAILURES_SQL, COMPILE_FAILURES_SQL = _page_statements(
    f"""{OUTCOME_SQL} as outcome, x.phase, x.occurrence_count, x.ended_program,
  coalesce(w.name, f.name) as function, coalesce(w.file, f.file) as file,
  case when x.phase = 'compile' then c.line else x.line end as line,
  x.error_type, x.message, e.body, coalesce(
    (
      select max(q.id)
      from repros as q
      where q.process_id = x.process_id
        and q.failure_position = x.position
        and q.state = 'captured'
    ),
    (
      select max(q.id)
      from repros as q
      where q.compile_key = x.compile_key
        and q.failure_position is null
        and q.kind = x.phase
        and q.state = 'captured'
    )
  ) as repro_id, coalesce(
    x.issue_id,
    (
      select max(k.issue_id)
      from compilations as k
      where k.compile_key = x.compile_key
        and x.phase = 'compile'
    )
  ) as issue_id""",  # noqa: S608 - our own names
    "failures",
    """left join functions as w on w.id = x.function_id
left join events as e on e.process_id = x.process_id and e.sequence = x.sequence""",
)
# A frame that dynamo left to eager is not a failure; the page of its compile shows the exception.
FAILURES_SQL = FAILURES_SQL.replace(
    ":run_id\n", ":run_id\n  and (x.phase <> 'compile' or coalesce(c.outcome, '') <> 'skipped')\n"
)
RUNTIME_SQL = f"""
{FAILURES_SQL.rpartition("where")[0]}
where x.run_id = :run_id
  and x.phase != 'compile'
order by x.ended_program desc, x.occurrence_count desc, x.id
limit :limit
"""
LOOKUPS_SQL, COMPILE_LOOKUPS_SQL = _page_statements(
    "f.name as function, x.cache, x.result, x.key, x.reason, x.time_taken_us, x.time_saved_us",
    "cache_lookups",
)
SKIPS_SQL, COMPILE_SKIPS_SQL = _page_statements(
    """f.name as function, coalesce(x.file, f.file) as file, coalesce(x.line, c.line) as line,
  x.code, x.reason""",
    "cudagraph_skips",
)
FAILED_SQL = """
select
  coalesce(x.error_type, k.fail_type) as error_type,
  min(coalesce(x.message, k.fail_reason)) as message,
  f.name as function, f.file, min(c.line) as line, count(distinct c.id) as compile_count
from compiles as c
left join failures as x on x.compile_key = c.id and x.phase = 'compile'
left join compilations as k on k.compile_key = c.id and k.fail_type is not null
left join functions as f on f.id = c.function_id
where c.run_id = :run_id
  and c.outcome = 'failed'
group by 1, c.function_id
union all
select x.error_type, min(x.message), null, null, null, count(*)
from failures as x
where x.run_id = :run_id
  and x.phase = 'compile'
  and x.compile_key is null
group by 1
order by compile_count desc, 1, function
limit :limit
"""
CACHE_RESULTS_SQL = """
select
  x.cache, x.result, x.reason, count(*) as lookup_count, sum(x.time_taken_us) as time_taken_us,
  sum(x.time_saved_us) as time_saved_us
from cache_lookups as x
where x.run_id = :run_id
group by x.cache, x.result, x.reason
order by x.cache, lookup_count desc, x.result, x.reason
limit 200
"""


list_failures = partial(list_page, FailureRow, FAILURES_SQL)
list_cache_lookups = partial(list_page, CacheLookup, LOOKUPS_SQL)
list_cudagraph_skips = partial(list_page, CudagraphSkip, SKIPS_SQL)
list_runtime_failures = partial(list_rows, FailureRow, RUNTIME_SQL)
count_failed = partial(list_rows, FailureGroup, FAILED_SQL)
count_cache_results = partial(list_rows, CacheResult, CACHE_RESULTS_SQL)


MOST = 20
_MAX_OPEN = 100


@dataclass(frozen=True)
class OpenSpan:
    name: str
    begin_us: int
    depth: int
    open_us: int | None


@dataclass(frozen=True)
class UnfinishedCompile:
    """A compile that never ended. `is_last` means that no compile of its process began after it.

    `until_us` is the time until the run's end, None if unknown or if another compile began.
    """

    compile_key: int
    compile_id: str
    process: str
    rank: int | None
    function: str | None
    file: str | None
    line: int | None
    started_us: int
    is_last: bool
    until_us: int | None
    spans: tuple[OpenSpan, ...]


UNFINISHED_SQL = """
select
  c.id as compile_key, c.compile_id, c.process_id, coalesce(c.rank, p.rank) as rank,
  f.name as function, f.file,
  c.line, c.started_us,
  not exists (
    select 1
    from compiles as later
    where later.run_id = c.run_id
      and later.process_id = c.process_id
      and (later.started_us, later.id) > (c.started_us, c.id)
  ) as is_last
from compiles as c
left join functions as f on f.id = c.function_id
left join processes as p on p.id = c.process_id
where c.run_id = :run_id
  and c.outcome = 'started'
  and (:key is null or c.id = :key)
order by is_last desc, c.started_us, c.id
limit :limit
"""
# Matched by process: a phase that began before dynamo named the compile has only torch's id of it.
OPEN_SQL = """
select n.name, s.begin_us, s.depth, l.last_us as seen_us
from compiles as c
join lanes as l on l.process_id = c.process_id
join spans as s on s.lane_id = l.id
join span_names as n on n.id = s.name_id
where c.id = :key
  and s.duration_us is null
  and (s.compile_key = c.id or (s.compile_key is null and s.compile_id = c.compile_id))
order by s.begin_us, s.depth, s.id
limit :limit
"""


def list_unfinished(
    connection: sqlite3.Connection, run: RunRow, key: int | None = None, limit: int = MOST
) -> list[UnfinishedCompile]:
    """List a run's unfinished compiles, those at its end first; empty while it is running."""
    if run.state == "running":
        return []
    listed = []
    records = connection.execute(UNFINISHED_SQL, {"run_id": run.id, "key": key, "limit": limit})
    for row in add_process_names(connection, records):
        ended_us = None
        if row["is_last"] and (run.ended_us or 0) >= row["started_us"] > 0:
            ended_us = run.ended_us
        spans = []
        values = {"key": row["compile_key"], "limit": _MAX_OPEN}
        for name, begin_us, depth, seen_us in connection.execute(OPEN_SQL, values):
            open_us = (ended_us or seen_us) - begin_us
            spans.append(OpenSpan(name, begin_us, depth, open_us if open_us > 0 else None))
        until_us = None if ended_us is None else ended_us - row["started_us"]
        del row["process_id"]
        listed.append(
            make_row(UnfinishedCompile, {**row, "until_us": until_us, "spans": tuple(spans)})
        )
    return listed


COUNT_SQL = """
select count(*)
from compiles as c
where c.run_id = :run_id
  and c.outcome = 'started'
"""


def count_unfinished(connection: sqlite3.Connection, run: RunRow) -> int:
    if run.state == "running":
        return 0
    return int(connection.execute(COUNT_SQL, {"run_id": run.id}).fetchone()[0])
