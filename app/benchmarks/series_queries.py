"""The points of every series, for the detection of changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, NamedTuple

from compileboard.app.core.engine import Engine, get_row
from compileboard.app.core.page import recorded_us_sql
from compileboard.app.reasons.queries import HistoryPoint, history_sql, list_points
from compileboard.collectors.store.incident_triage import SERIES
from compileboard.collectors.store.results import find_batch_sizes, rank_experiment
from compileboard.collectors.store.rollups import NUMBERS, SET

RUNS_SQL = """
select r.pub, r.id, r.started_us, coalesce(r.git_branch, '') as branch, r.git_commit, r.state
from runs as r
where r.source <> 'trial'
order by r.started_us, r.id
limit 1000000
"""
NEWEST_PUB_SQL = "select max(pub) as pub from runs"
SERIES_OF_RUNS_SQL = """
select distinct x.series_id
from $each(:run_ids) as wanted
join $rows(results, :run_ids) as x on x.run_id = wanted.value
order by x.series_id
limit 1000000
"""
SERIES_SQL = f"""
select id, {", ".join(SERIES)}
from series
where id $in(:ids)
order by id
limit 1000000
"""  # noqa: S608  own texts only
# The only experiment besides performance with a metric of its own.
_SECOND_PROCESS = "caching_precompile"
# Rows are many and wide: sorting them takes longer than reading them.
_POINTS = {
    "all": "from results as x where 1",
    "series": (
        "from $each(:series_ids) as wanted join results as x on x.series_id = wanted.value where 1"
    ),
    "runs": (
        "from $each(:run_ids) as wanted join $rows(results, :run_ids) as x on x.run_id = "
        "wanted.value where 1"
    ),
}
STATUSES_SQL = """
select x.series_id, x.experiment, x.run_id, x.status, x.accuracy, x.time_us
{points}
limit 100000000
"""
# Series without a batch size, which failures have, and those of the same model with one.
SIBLINGS_SQL = f"""
select u.id as unknown_id, k.id as known_id
from series as u
join series as k
  on {" and ".join(f"k.{name} = u.{name}" for name in SERIES if name != "batch_size")}
where u.batch_size = 0
  and k.batch_size > 0
order by unknown_id, known_id
limit 1000000
"""  # noqa: S608 - our own names
MODEL_POINTS_SQL = """
select x.series_id, x.run_id, x.speedup_low, x.speedup_high, {columns}
{points}
  and x.experiment = :experiment
limit 100000000
"""
SUITE_POINTS_SQL = f"""
select {", ".join(f"x.{name}" for name in SET)}, x.run_id,
{", ".join(f"x.{name}" for name in NUMBERS)}
from run_summaries as x
where x.definition = :definition
  and (:suites is null or x.suite $in(:suites))
order by {", ".join(f"x.{name}" for name in SET)}
limit 10000000
"""  # noqa: S608 - our own names
SUITES_OF_RUNS_SQL = """
select distinct x.suite
from $each(:run_ids) as wanted
join $rows(run_summaries, :run_ids) as x on x.run_id = wanted.value
order by x.suite
limit 100000
"""
RUN_POINTS_SQL = f"""
select
  coalesce(r.suite, '') as suite, r.name as model, coalesce(r.gpu_name, '') as hardware, r.id,
  {recorded_us_sql("$t.compile_us", "$t.compile_count")} / 1e6 as compile_s,
  $t.compile_count, $t.recompile_count, $t.graph_break_count, $t.recompile_limit_count,
  $t.cudagraph_rerecording_count
from runs as r
$totals
where $t.result_count = 0
  and $t.process_count > 0
  and r.source <> 'trial'
  and {{named}}
order by suite, model, hardware
limit 1000000
"""  # noqa: S608  own texts only
NAMES_OF_RUNS_SQL = """
select distinct r.name
from runs as r
where r.id $in(:run_ids)
order by r.name
limit 1000000
"""


@dataclass(frozen=True)
class SeriesRun:
    pub: int
    id: str
    started_us: int
    branch: str
    commit: str | None
    state: str


class _Status(NamedTuple):
    series_id: int
    experiment: str
    run_id: str
    status: str
    accuracy: str | None
    time_us: int
    key: int = 0
    batch_size: int | None = None


@dataclass(frozen=True)
class ModelPoints:
    """A series' rows of its leading experiment, and each run's statuses of all experiments.

    `rows` have series_id, run_id, speedup_low, speedup_high, then the requested metrics.
    """

    series_id: int
    key: Mapping[str, Any]
    experiment: str
    rows: Sequence[tuple[Any, ...]]
    statuses: Sequence[Sequence[Any]]  # run_id, status, accuracy
    second_processes: Sequence[
        tuple[str, float | None]
    ]  # run_id, second_process_latency_s beside another experiment


def list_point_runs(engine: Engine) -> list[SeriesRun]:
    return [SeriesRun(*row) for row in engine.rows(RUNS_SQL)]


def get_newest_pub(engine: Engine) -> int:
    return int(engine.rows(NEWEST_PUB_SQL)[0]["pub"] or 0)


def list_series_of(engine: Engine, run_ids: Iterable[str]) -> list[int]:
    """List the series of the runs' results, and those to which a failure without a batch size may
    belong.
    """
    own = [int(row[0]) for row in engine.rows(SERIES_OF_RUNS_SQL, {"run_ids": list(run_ids)})]
    siblings = _list_siblings(engine)
    return sorted({*own, *chain.from_iterable(siblings.get(series_id, ()) for series_id in own)})


def _list_siblings(engine: Engine) -> dict[int, list[int]]:
    siblings: dict[int, list[int]] = {}
    for unknown_id, known_id in engine.rows(SIBLINGS_SQL):
        siblings.setdefault(unknown_id, []).append(known_id)
    return siblings


def list_suites_of(engine: Engine, run_ids: Iterable[str]) -> list[str]:
    return [str(row[0]) for row in engine.rows(SUITES_OF_RUNS_SQL, {"run_ids": list(run_ids)})]


def list_names_of(engine: Engine, run_ids: Iterable[str]) -> list[str]:
    return [str(row[0]) for row in engine.rows(NAMES_OF_RUNS_SQL, {"run_ids": list(run_ids)})]


def list_model_points(
    engine: Engine,
    metrics: Sequence[str],
    series_ids: Sequence[int] | None = None,
    run_ids: Sequence[str] | None = None,
) -> Iterator[ModelPoints]:
    which = "runs" if run_ids is not None else "series" if series_ids is not None else "all"
    siblings, wanted = _list_siblings(engine), set(series_ids or ())
    families = [{unknown_id, *known_ids} for unknown_id, known_ids in siblings.items()]
    read_ids = wanted.union(*(family for family in families if not wanted.isdisjoint(family)))
    values = {"series_ids": sorted(read_ids), "run_ids": list(run_ids or ())}
    statuses = [
        _Status(*row) for row in engine.stream(STATUSES_SQL.format(points=_POINTS[which]), values)
    ]
    places = _assign_failures(statuses, siblings)
    statuses_by_id: dict[int, list[Sequence[Any]]] = {}
    experiments: dict[int, set[str]] = {}
    for row in statuses:
        series_id = places.get(row[:3], row.series_id)
        statuses_by_id.setdefault(series_id, []).append((row.run_id, row.status, row.accuracy))
        experiments.setdefault(series_id, set()).add(row.experiment)
    leads = {series_id: min(names, key=rank_experiment) for series_id, names in experiments.items()}

    rows: dict[int, list[tuple[Any, ...]]] = {}
    seconds: dict[int, list[tuple[str, float | None]]] = {}
    sql = MODEL_POINTS_SQL.format(
        columns=", ".join(f"x.{name}" for name in metrics), points=_POINTS[which]
    )
    for experiment in sorted(set(leads.values())):
        for series_id, run_id, *numbers in engine.stream(sql, values | {"experiment": experiment}):
            series_id = places.get((series_id, experiment, run_id), series_id)
            if leads[series_id] == experiment:
                rows.setdefault(series_id, []).append((series_id, run_id, *numbers))
    if any(
        _SECOND_PROCESS in names and leads[series_id] != _SECOND_PROCESS
        for series_id, names in experiments.items()
    ):
        sql = MODEL_POINTS_SQL.format(columns="x.second_process_latency_s", points=_POINTS[which])
        for series_id, run_id, _low, _high, latency_s in engine.stream(
            sql, values | {"experiment": _SECOND_PROCESS}
        ):
            series_id = places.get((series_id, _SECOND_PROCESS, run_id), series_id)
            if leads[series_id] != _SECOND_PROCESS:
                seconds.setdefault(series_id, []).append((run_id, latency_s))
    chosen = sorted(wanted & leads.keys() if series_ids is not None else leads)
    for series_id, *key in engine.stream(SERIES_SQL, {"ids": chosen}):
        parts = rows[series_id], statuses_by_id[series_id], seconds.get(series_id, ())
        yield ModelPoints(series_id, dict(zip(SERIES, key)), leads[series_id], *parts)


def _assign_failures(
    statuses: Iterable[_Status], siblings: Mapping[int, Sequence[int]]
) -> dict[tuple[Any, ...], int]:
    keys = {
        known_id: unknown_id for unknown_id, known_ids in siblings.items() for known_id in known_ids
    }
    related = [row._replace(key=row.series_id) for row in statuses if row.series_id in siblings]
    related += [
        row._replace(key=keys[row.series_id], batch_size=row.series_id)
        for row in statuses
        if row.series_id in keys
    ]
    return {related[at][:3]: series_id for at, series_id in find_batch_sizes(related).items()}


def list_suite_points(
    engine: Engine, definition: str, suites: Sequence[str] | None = None
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    values = {"definition": definition, "suites": None if suites is None else list(suites)}
    key: tuple[Any, ...]
    for key, group in groupby(
        engine.rows(SUITE_POINTS_SQL, values), key=lambda row: tuple(row)[: len(SET)]
    ):
        yield dict(zip(SET, key)), [dict(row) for row in group]


def list_run_points(
    engine: Engine, names: Sequence[str] | None = None
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    # Written only if set, so that the index of names is used.
    sql = RUN_POINTS_SQL.format(named="true" if names is None else "r.name $in(:names)")
    values = {} if names is None else {"names": list(names)}
    key: tuple[Any, ...]
    for key, group in groupby(engine.rows(sql, values), key=lambda row: tuple(row)[:3]):
        yield dict(zip(("suite", "model", "hardware"), key)), [dict(row) for row in group]


NAMES_SQL = """
select subject, suite, model, hardware
from (
  select 'model' as subject, suite, model, hardware
  from series
  union
  select 'suite', suite, '', hardware
  from series
  union
  select 'runs', coalesce(suite, ''), name, coalesce(gpu_name, '')
  from runs
  where source <> 'trial'
) as named
order by subject, suite, model, hardware
limit 1000000
"""


class SeriesName(NamedTuple):
    subject: str
    suite: str
    model: str
    hardware: str


def list_series_names(engine: Engine) -> list[SeriesName]:
    return [SeriesName(*row) for row in engine.rows(NAMES_SQL)]


# Of runs that compiled something: the others cannot recompile.
CATEGORY_SQL = """
with newest as materialized (
  select r.id, $pub(r) as pub, r.name, $a.title, r.started_us
  from runs as r
  $totals
  $words
  where $t.compile_count > 0
    and r.source <> 'trial'
    and (:suite is null or r.suite = :suite)
  order by r.started_us desc, r.id desc
  limit :newest
), failed as (
  select n.id as run_id, sum(b.recompile_count) as count
  from newest as n
  $join $rows(run_causes, newest) as b on $of(b, n)
  join recompile_causes as c on c.id = b.cause_id
  where c.category = :category
  group by n.id
)
select n.id as run_id, n.name, n.title, n.started_us, coalesce(f.count, 0) as count
from newest as n
left join failed as f on f.run_id = n.id
order by n.started_us desc, n.id desc
limit :newest
"""
LABEL_SQL = {
    "function": "select name || ' in ' || file as label from functions where id = :id",
    "break": """
select coalesce(gb_id || ': ', '') || coalesce(gb_type, reason) as label
from distinct_breaks
where id = :id
""",
}
_HISTORY_SQL = {
    "function": history_sql("run_functions", "function_id", "recompile_count"),
    "break": history_sql("run_breaks", "distinct_id", "break_count"),
}


@dataclass(frozen=True)
class RunCount:
    label: str
    points: list[HistoryPoint]


def count_runs(engine: Engine, kind: str, thing_id: int, *, run_count: int) -> RunCount | None:
    values = {"id": thing_id, "newest": run_count}
    row = get_row(engine, LABEL_SQL[kind], values)
    if row is None:
        return None
    points = list_points(engine, _HISTORY_SQL[kind], values)
    return RunCount(str(row["label"]), points)


def count_recompiles(
    engine: Engine, category: str, suite: str | None = None, *, run_count: int
) -> list[HistoryPoint]:
    return list_points(
        engine, CATEGORY_SQL, {"category": category, "suite": suite, "newest": run_count}
    )
