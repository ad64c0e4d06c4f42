"""Queries of the overview: totals, a point per run, the costliest graph breaks and functions.

All of them read the roll-ups of the `newest` runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypeVar

from compileboard.app.core import fields
from compileboard.app.core.engine import Engine, Row
from compileboard.app.core.newest import SHOWN_STATE
from compileboard.app.core.page import recorded_us_sql
from compileboard.app.core.rows import make_row
from compileboard.app.core.schema import PRIVATE
from compileboard.app.runs.queries import CONDITIONS, bind_suite
from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.store.rollups import HUD_PASSING


@dataclass(frozen=True)
class DatabaseTotals:
    """Sums over all runs. They are null if no run was observed, as in a database of result files
    alone.
    """

    tables = ("run_totals",)

    run_count: Annotated[fields.Count, "Runs in the database, or with the filter."]
    running_count: Annotated[fields.Count, "Runs that are running."]
    compile_count: int | None
    recompile_count: int | None
    graph_break_count: int | None
    recompile_limit_count: int | None
    failure_count: int | None
    skipped_frame_count: int | None
    failed_run_count: Annotated[fields.Count, "Runs with a failure or a failed result."]
    compile_us: Annotated[fields.DurationUs | None, "Compile time."]
    recompile_us: Annotated[fields.DurationUs | None, "Time of recompiles."]


@dataclass(frozen=True)
class RunPoint:
    """A run as a point in the overview's charts."""

    tables = ("runs", "run_annotations", "run_totals")

    run_id: fields.RunId
    name: str
    title: fields.Title
    suite: str | None
    state: Annotated[str, "State of the run."]
    started_us: fields.StartTime
    compile_count: int | None
    recompile_count: int | None
    graph_break_count: int | None
    compile_us: Annotated[fields.DurationUs | None, "Compile time."]
    has_failed: Annotated[bool, "Whether a compile, running code or a result of it failed."] = False
    is_observed: Annotated[
        bool, "Whether torch was observed; result files have only their own columns."
    ] = True


@dataclass(frozen=True)
class TopBreak(fields.TitledBreak):
    """One of the graph breaks that cost most compile time."""

    tables = ("distinct_breaks", "run_breaks")

    distinct_id: fields.BreakId
    gb_id: fields.GbId
    gb_type: fields.GbType
    reason: fields.BreakReason
    explanation: fields.Explanation
    source_line: fields.SourceLine
    function: fields.FunctionName
    file: fields.FileName
    line: fields.LineNumber
    run_id: str = field(metadata=PRIVATE)  # one run that has it
    fingerprint: str = field(metadata=PRIVATE)
    break_count: int
    run_count: Annotated[fields.Count, "Runs that have it."]
    compile_us: fields.CompilesUs
    is_present: Annotated[
        bool, "Whether the newest run of a suite and name that had it still has it."
    ]
    called_at: fields.CalledAt = None
    is_expected: Annotated[bool, "Whether there is nothing to fix."] = False


@dataclass(frozen=True)
class TopCause(fields.CauseFields):
    """One of the recompile causes that cost most compile time."""

    tables = ("recompile_causes", "run_causes")

    cause_id: Annotated[fields.ContentId, "Its id, the same in every database."]
    category: fields.Category
    source: fields.GuardSource
    reason: str
    function: fields.FunctionName
    file: fields.FileName
    run_id: str = field(metadata=PRIVATE)  # one run that has it
    recompile_count: fields.CauseRecompiles
    run_count: Annotated[fields.Count, "Runs that have it."]
    compile_us: fields.CompilesUs
    is_present: Annotated[
        bool, "Whether the newest run of a suite and name that had it still has it."
    ]
    called_at: fields.CalledAt = None
    is_expected: Annotated[bool, "Whether there is nothing to fix."] = False


@dataclass(frozen=True)
class TopFunction:
    """One of the functions that recompile most."""

    tables = ("run_functions", "functions")

    function_id: fields.ContentId
    name: str
    file: str
    recompile_count: int
    recompile_limit_count: int
    compile_count: int
    run_count: Annotated[fields.Count, "Runs that have it."]
    compile_us: fields.CompilesUs


@dataclass(frozen=True)
class RunSeries:
    """Runs of the same suite and name."""

    suite: Annotated[str | None, "Suite of these runs; null of runs without one."]
    name: Annotated[str, "Name that these runs have."]
    run_count: Annotated[fields.Count, "Runs of this suite and name."]


_SCOPE = ("suite", "result_suite", "name")


def write_scope(values: Mapping[str, Any]) -> str:
    given = [CONDITIONS[name] for name in _SCOPE if values[name] is not None]
    return " and ".join(["r.source <> 'trial'", *given])


def _newest_sql(scope: str) -> str:
    return f"""
with newest as materialized (
  select r.id, $pub(r) as pub
  from runs as r
  where {scope}
  order by r.started_us desc, r.id desc
  limit :newest
)
"""  # noqa: S608  own texts only


def _newest_of_each_sql(scope: str) -> str:
    return f"""
with last as materialized (
  select
    r.suite, r.name, max(case when r.state <> 'running' then r.started_us end) as ended_us,
    max(r.started_us) as started_us
  from runs as r
  where {scope}
  group by r.suite, r.name
), newest as materialized (
  select r.id, r.pub as pub, coalesce(r.ended_us, r.started_us) = coalesce(last.ended_us,
    last.started_us) as is_newest
  from (
    select
      r.id, $pub(r) as pub, r.suite, r.name, r.started_us,
      case when r.state <> 'running' then r.started_us end as ended_us
    from runs as r
    where {scope}
    order by r.started_us desc, r.id desc
    limit :newest
  ) as r
  join last on last.suite $is r.suite and last.name = r.name
)
"""  # noqa: S608  own texts only


_SUMS = f"""
  coalesce(sum($t.compile_count), 0) as compile_count,
  coalesce(sum($t.recompile_count), 0) as recompile_count,
  coalesce(sum($t.graph_break_count), 0) as graph_break_count,
  coalesce(sum($t.recompile_limit_count), 0) as recompile_limit_count,
  coalesce(sum($t.failure_count), 0) as failure_count,
  coalesce(sum($t.skipped_frame_count), 0) as skipped_frame_count,
  coalesce(sum($t.failure_count + $t.failed_result_count > 0), 0) as failed_run_count,
  {recorded_us_sql("sum($t.compile_us)", "sum($t.compile_count)")} as compile_us,
  {recorded_us_sql("sum($t.recompile_us)", "sum($t.recompile_count)")} as recompile_us
"""
# SQLite reads all runs: totals in their own order, running runs and trials, which are few, by
# index.
_ALL_TOTALS = f"""
select
  (select count(*) from runs) - (select count(*) from runs where source = 'trial') as run_count,
  (
    select count(*)
    from runs
    where state = 'running'
      and heartbeat_us >= :alive_since_us
      and source <> 'trial'
  ) as running_count,
  {_SUMS}
from run_totals as t
where t.run_id not in (select id from runs where source = 'trial')
"""  # noqa: S608 - our own names


def totals_sql(scope: str) -> str:
    return f"""
select
  count(*) as run_count,
  coalesce(sum(case when r.state = 'running' then r.heartbeat_us >= :alive_since_us end),
    0) as running_count,
  {_SUMS}
from runs as r
$totals
where {scope}
"""  # noqa: S608 - our own names


def trend_sql(scope: str) -> str:
    return f"""
select
  r.id as run_id, r.name, $a.title, r.suite, {SHOWN_STATE} as state, r.started_us,
  coalesce($t.compile_count, 0) as compile_count,
  coalesce($t.recompile_count, 0) as recompile_count,
  coalesce($t.graph_break_count, 0) as graph_break_count,
  {recorded_us_sql("$t.compile_us", "$t.compile_count")} as compile_us,
  coalesce($t.failure_count + $t.failed_result_count > 0, 0) as has_failed,
  r.torch_version is not null or coalesce($t.compile_count, 0) > 0 as is_observed
from runs as r
$totals
$words
where {scope}
order by r.started_us desc, r.id desc
limit :newest
"""  # noqa: S608 - our own names


def top_sql(
    scope: str, table: str, run_table: str, key: str, count: str, least: int, columns: str
) -> str:
    return f"""
{_newest_of_each_sql(scope)}, top as (
  select
    b.{key},
    max(n.id) as run_id,
    sum(b.{count}) as {count},
    count(*) as run_count,
    sum(b.compile_us) as compile_us,
    max(n.is_newest) as is_present
  from newest as n
  $join $rows({run_table}, newest) as b on $of(b, n)
  where b.{count} >= {least}
  group by b.{key}
  order by compile_us desc, {count} desc, b.{key}
  limit :limit
)
select
  d.id as {key}, {columns}, f.name as function, f.file, top.{count}, top.run_count,
  nullif(top.compile_us, 0) as compile_us, top.is_present
from top
join {table} as d on d.id = top.{key}
left join functions as f on f.id = d.function_id
order by top.compile_us desc, top.{count} desc, d.id
limit :limit
"""  # noqa: S608 - our own names


_LEFT_OUT = ("id", "fingerprint", "function_id", "hints")


def breaks_sql(scope: str) -> str:
    columns = TABLES["distinct_breaks"].select_sql("d", *_LEFT_OUT)
    columns += ", d.fingerprint, top.run_id"
    of = ("distinct_breaks", "run_breaks", "distinct_id", "break_count", 0)
    return top_sql(scope, *of, columns)


def causes_sql(scope: str) -> str:
    columns = TABLES["recompile_causes"].select_sql("d", *_LEFT_OUT) + ", top.run_id"
    of = ("recompile_causes", "run_causes", "cause_id", "recompile_count", 1)
    return top_sql(scope, *of, columns)


def functions_sql(scope: str) -> str:
    return f"""
{_newest_sql(scope)}, top as (
  select
    u.function_id,
    sum(u.recompile_count) as recompile_count,
    sum(u.recompile_limit_count) as recompile_limit_count,
    sum(u.compile_count) as compile_count,
    count(*) as run_count,
    sum(u.compile_us) as compile_us
  from newest as n
  $join $rows(run_functions, newest) as u on $of(u, n)
  where u.recompile_count > 0
  group by u.function_id
  order by recompile_count desc, u.function_id
  limit :limit
)
select
  f.id as function_id, f.name, f.file, top.recompile_count, top.recompile_limit_count,
  top.compile_count,
  top.run_count, nullif(top.compile_us, 0) as compile_us
from top
join functions as f on f.id = top.function_id
order by top.recompile_count desc, f.id
limit :limit
"""  # noqa: S608 - our own names


def programs_sql(scope: str) -> str:
    """Return the SQL of observed runs that ended, the newest first."""
    return f"""
select id, suite, name, result_count > 0 as is_benchmark
from (
  select
    r.id, r.suite, r.name, r.state, r.started_us,
    coalesce($t.compile_count, 0) as compile_count,
    coalesce($t.result_count, 0) as result_count
  from runs as r
  $totals
  where {scope}
  order by r.started_us desc, r.id desc
  limit :newest
) as n
where state <> 'running'
  and compile_count between 1 and :max_compiles
order by started_us desc, id desc
limit :newest
"""  # noqa: S608 - our own names


SERIES_SQL = """
select suite, name, count(*) as run_count
from runs
where source <> 'trial'
group by suite, name
order by suite nulls first, name
limit 500
"""


def get_totals(
    engine: Engine, suite: str | None = None, name: str | None = None, *, alive_since_us: int = 0
) -> DatabaseTotals:
    values = {**bind_suite(engine, suite), "name": name, "alive_since_us": alive_since_us}
    sql = (
        _ALL_TOTALS
        if engine.dialect == "sqlite" and suite is None and name is None
        else totals_sql(write_scope(values))
    )
    sums = dict(engine.rows(sql, values)[0])
    if (
        sums["run_count"]
        and not sums["compile_count"]
        and not has_observed_runs(engine, suite, name)
    ):
        sums = {
            key: value or (value if key in _COUNTED_ALWAYS else None) for key, value in sums.items()
        }
    return DatabaseTotals(**sums)


_COUNTED_ALWAYS = ("run_count", "running_count", "failed_run_count")  # counted for result files too


def has_observed_runs(engine: Engine, suite: str | None = None, name: str | None = None) -> bool:
    """Return whether any of the runs recorded torch itself, not only imported result files."""
    values = {**bind_suite(engine, suite), "name": name}
    scope = write_scope(values)
    sql = f"select 1 from runs as r where {scope} and r.torch_version is not null limit 1"  # noqa: S608  own text
    return bool(engine.rows(sql, values))


def list_trend(
    engine: Engine,
    suite: str | None = None,
    name: str | None = None,
    *,
    run_count: int = 1000,
    alive_since_us: int = 0,
) -> list[RunPoint]:
    values = {**bind_suite(engine, suite), "name": name, "newest": run_count}
    values["alive_since_us"] = alive_since_us
    rows = engine.rows(trend_sql(write_scope(values)), values)
    return [_to_point(row) for row in reversed(rows)]


def _to_point(row: Row) -> RunPoint:
    counts = ("compile_count", "recompile_count", "graph_break_count", "compile_us")
    unseen = {} if row["is_observed"] else {name: row[name] or None for name in counts}
    return make_row(RunPoint, dict(row) | unseen)


Top = TypeVar("Top", TopBreak, TopCause, TopFunction)
_TOP_SQL = {TopBreak: breaks_sql, TopCause: causes_sql, TopFunction: functions_sql}


def list_top(
    engine: Engine,
    kind: type[Top],
    suite: str | None = None,
    name: str | None = None,
    *,
    run_count: int = 1000,
    limit: int = 8,
) -> list[Top]:
    """List the costliest graph breaks or causes, or the functions that recompile most."""
    values = {**bind_suite(engine, suite), "name": name, "newest": run_count, "limit": limit}
    rows = engine.rows(_TOP_SQL[kind](write_scope(values)), values)
    return [make_row(kind, row) for row in rows]


class ProgramRun(NamedTuple):
    id: str
    is_benchmark: bool


def list_program_runs(
    engine: Engine, suite: str | None, name: str | None, *, run_count: int, max_compiles: int
) -> list[ProgramRun]:
    """List the newest run of each program and benchmark, the newest first."""
    values = {**bind_suite(engine, suite), "name": name, "newest": run_count}
    values["max_compiles"] = max_compiles
    runs: dict[tuple[str | None, str], ProgramRun] = {}
    for row in engine.rows(programs_sql(write_scope(values)), values):
        run = ProgramRun(row["id"], bool(row["is_benchmark"]))
        runs.setdefault((row["suite"], row["name"]), run)
    return list(runs.values())


def list_series(engine: Engine) -> list[RunSeries]:
    return [RunSeries(*row) for row in engine.rows(SERIES_SQL)]


FAILED_RESULTS_SQL = """
select x.run_id, s.model, x.reason, x.message
from $each(:run_ids) as wanted
join $rows(results, :run_ids) as x on x.run_id = wanted.value
join series as s on s.id = x.series_id
where x.status = 'failed'
  and (:suite is null or s.suite = :suite)
order by x.run_id, s.model, x.id
limit 1000
"""
WRONG_RESULTS_SQL = """
select distinct s.model
from $each(:run_ids) as wanted
join $rows(results, :run_ids) as x on x.run_id = wanted.value
join series as s on s.id = x.series_id
where x.status = 'measured'
  and x.accuracy is not null
  and not x.accuracy $in(:passing)
  and s.suite = :suite
order by s.model
limit 100000
"""
MEASURED_SQL = """
select distinct
  x.run_id, s.suite, s.model, s.mode, s.dtype, s.device, s.hardware, s.backend, s.dynamic,
  s.batch_size, s.world_size
from $each(:run_ids) as wanted
join $rows(results, :run_ids) as x on x.run_id = wanted.value
join series as s on s.id = x.series_id
where x.status = 'measured'
  and s.model $in(:models)
order by x.run_id, s.model
limit 100000
"""
# The HUD's formula, or all models with a speedup if the run checked no accuracy.
SPEEDUPS_SQL = """
select
  x.run_id, x.definition, x.geomean_speedup, x.speedup_count, x.measured_count, x.total_count,
  x.failed_count
from $each(:run_ids) as wanted
join $rows(run_summaries, :run_ids) as x on x.run_id = wanted.value
where x.definition in ('hud', 'summarize_perf')
order by
  x.run_id, x.measured_count desc, x.total_count desc, x.mode, x.dtype, x.device, x.hardware,
  x.backend, x.dynamic,
  x.world_size, x.suite, (x.definition = 'hud') = (x.passed_count is null), x.definition
limit 1000
"""


@dataclass(frozen=True)
class FailedModel:
    model: Annotated[str, "The model."]
    reason: Annotated[str | None, "Upstream's status."]
    message: Annotated[str | None, "The exception."]

    @property
    def error(self) -> str:
        first = (self.message or "").strip().partition("\n")[0]
        return first or (self.reason or "failed").replace("_", " ")


@dataclass(frozen=True)
class RunSpeedup:
    definition: Annotated[str, "`hud`, or `summarize_perf` where no accuracy was checked."]
    geomean_speedup: Annotated[float | None, "Geomean speedup by that definition."]
    speedup_count: Annotated[fields.Count, "Models that have a speedup."]
    measured_count: Annotated[fields.Count, "Models measured."]
    total_count: Annotated[fields.Count, "Models."]
    failed_count: Annotated[fields.Count, "Models that failed."]


def list_failed_models(
    engine: Engine, run_ids: list[str], suite: str | None = None
) -> dict[str, list[FailedModel]]:
    failed: dict[str, dict[str, FailedModel]] = {}
    for row in engine.rows(FAILED_RESULTS_SQL, {"run_ids": run_ids, "suite": suite}):
        model = FailedModel(row["model"], row["reason"], row["message"])
        failed.setdefault(row["run_id"], {}).setdefault(model.model, model)
    return {run_id: list(models.values()) for run_id, models in failed.items()}


def list_wrong_models(engine: Engine, run_id: str, suite: str) -> list[str]:
    """List a suite's models that ran but failed the accuracy check by the rule of PyTorch's HUD."""
    values = {"run_ids": [run_id], "passing": sorted(HUD_PASSING), "suite": suite}
    return [row["model"] for row in engine.rows(WRONG_RESULTS_SQL, values)]


def list_measured_models(
    engine: Engine, run_ids: list[str], models: list[str]
) -> dict[str, set[tuple[str | int, ...]]]:
    measured: dict[str, set[tuple[str | int, ...]]] = {}
    for row in engine.rows(MEASURED_SQL, {"run_ids": run_ids, "models": models}):
        run_id, *key = row
        measured.setdefault(run_id, set()).add(tuple(key))
    return measured


def list_speedups(engine: Engine, run_ids: list[str]) -> dict[str, RunSpeedup]:
    speedups: dict[str, RunSpeedup] = {}
    for row in engine.rows(SPEEDUPS_SQL, {"run_ids": run_ids}):
        speedups.setdefault(row["run_id"], RunSpeedup(*list(row)[1:]))
    return speedups
