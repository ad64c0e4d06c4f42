"""Models across runs: the newest result of each, and one model's history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.core.engine import Dialect, Engine
from compileboard.app.core.newest import HAS_RESULTS
from compileboard.app.core.parameters import (
    OTHER_KEYS,
    BackendName,
    DeviceName,
    DtypeName,
    HardwareName,
    ModeName,
    Parameter,
    SuiteName,
    list_names,
    read_query,
)
from compileboard.app.core.schema import Keywords
from compileboard.app.runs.rows import MAX_RESULTS
from compileboard.collectors.store.results import (
    COLUMNS,
    BriefResult,
    ExperimentResult,
    Key,
    Measured,
    ResultRow,
    assign_batch_sizes,
    merge_results,
    merge_with_parts,
    read_measured,
)
from compileboard.collectors.store.rollups import HUD_PASSING, SET

STATUSES = ("measured", "failed", "skipped", "not_run")
ACCURACIES = ("pass", "fail", "skipped", "not_measured")
# Of one model: 2,000 runs of 10 series.
MAX_HISTORY = 20_000
_IDENTITY = BriefResult._fields.index("model") + 1  # the configuration and the model

_WANTED = """
  (:suite is null or s.suite = :suite)
  and (:mode is null or s.mode = :mode)
  and (:dtype is null or s.dtype = :dtype)
  and (:device is null or s.device = :device)
  and (:hardware is null or s.hardware = :hardware)
  and (:backend is null or s.backend = :backend)
  and (:dynamic is null or s.dynamic = :dynamic)
  and (:world_size is null or s.world_size = :world_size)
  and (:q is null or instr(lower(s.model), lower(:q)) or instr(lower(s.suite), lower(:q)))
"""
# In the order of BriefResult.
_BRIEF = """
  s.suite, nullif(s.mode, '') as mode, nullif(s.dtype, '') as dtype, nullif(s.device, '') as device,
  nullif(s.hardware, '') as hardware, nullif(s.backend, '') as backend, s.dynamic, s.world_size,
  s.model, x.experiment, nullif(s.batch_size, 0) as batch_size, x.id, x.status, x.accuracy,
  x.speedup, x.speedup_high, x.time_us, x.run_id
"""
# The experiments of a series, found by skipping through results_series; then the newest result of
# each.
_LATEST = f"""
with recursive newest (series_id, experiment) as (
  select s.id, (select min(r.experiment) from results as r where r.series_id = s.id)
  from series as s
  where {_WANTED}
  union all
  select
    n.series_id,
    (select min(r.experiment) from results as r where r.series_id = n.series_id
      and r.experiment > n.experiment)
  from newest as n
  where n.experiment is not null
)
select {{columns}}
from newest as n
join series as s on s.id = n.series_id
join results as x on x.id = (
  select r.id
  from results as r
  where r.series_id = n.series_id
    and r.experiment = n.experiment
  order by r.time_us desc, r.id desc
  limit 1
)
where n.experiment is not null
order by x.id
limit :limit
"""  # noqa: S608  own texts only
# ClickHouse has a table of them, kept by publication.
_LATEST_KEPT = f"""
select {{columns}}
from newest_results as x
join series as s on s.id = x.series_id
where {_WANTED}
order by x.id
limit :limit
"""  # noqa: S608 - our own names
LATEST_SQL: Mapping[Dialect, str] = {
    "sqlite": _LATEST.format(columns=COLUMNS),
    "clickhouse": _LATEST_KEPT.format(columns=COLUMNS),
}
LATEST_BRIEF_SQL: Mapping[Dialect, str] = {
    "sqlite": _LATEST.format(columns=_BRIEF),
    "clickhouse": _LATEST_KEPT.format(columns=_BRIEF),
}
_OF_RUN = f"""
select {{columns}}
from results as x
join series as s on s.id = x.series_id
where x.run_id = :run_id
  and {_WANTED}
order by {{order}}
limit :limit
"""  # noqa: S608 - our own names
RUN_SQL = _OF_RUN.format(columns=COLUMNS, order="x.series_id, x.experiment")
RUN_BRIEF_SQL = _OF_RUN.format(columns=_BRIEF, order="x.id")
LISTED_SQL = f"""
select {COLUMNS}
from results as x
join series as s on s.id = x.series_id
where x.id $in(:ids)
order by x.id
limit :limit
"""  # noqa: S608 - our own names
HISTORY_SQL = f"""
select {COLUMNS}
from series as s
join results as x on x.series_id = s.id
where s.model = :model
  and (:suite is null or s.suite = :suite)
order by x.time_us desc, x.id desc
limit :limit
"""  # noqa: S608 - our own names
CHOICES_SQL = """
select distinct suite, mode, dtype, device, hardware, backend, world_size
from series
order by suite, mode, dtype, device, hardware, backend, world_size
limit 10000
"""
RUNS_SQL = """
select r.id, coalesce($a.title, r.name) as name, r.started_us, $t.result_count
from runs as r
$totals
$words
where {has_results}
  and coalesce($t.result_count, 0) > 0
order by r.started_us desc, r.id desc
limit :limit
"""


@dataclass(frozen=True)
class ModelFilter:
    q: Annotated[str | None, "Text to look for; capitals do not matter."] = None
    suite: SuiteName = None
    mode: ModeName = None
    dtype: DtypeName = None
    device: DeviceName = None
    hardware: HardwareName = None
    backend: BackendName = None
    dynamic: Annotated[
        bool | None,
        Parameter(choices=("no", "yes"), read=lambda _name, text: text == "yes"),
        "With dynamic shapes.",
    ] = None
    world_size: Annotated[
        int | None,
        Parameter(expected="a number from 1 to 1000000"),
        Keywords(minimum=1, maximum=1_000_000),
        "Ranks that it ran on.",
    ] = None
    experiment: Annotated[str | None, "An experiment: `accuracy`, `export`. Its results alone."] = (
        None
    )
    status: Annotated[str | None, Parameter(choices=STATUSES), "State of the model."] = None
    accuracy: Annotated[
        str | None, Parameter(choices=ACCURACIES), "Result of its accuracy check."
    ] = None
    run: Annotated[
        str | None,
        "A run's id, or `latest`: its results instead of the newest of each model.",
    ] = None


FILTERS = list_names(ModelFilter)


@dataclass(frozen=True)
class ModelChoices:
    suites: tuple[str, ...]
    modes: tuple[str, ...]
    dtypes: tuple[str, ...]
    devices: tuple[str, ...]
    hardware: tuple[str, ...]
    backends: tuple[str, ...]
    world_sizes: tuple[int, ...]


@dataclass(frozen=True)
class BenchmarkRun:
    id: str
    name: str
    started_us: int
    result_count: int


def read_model_filter(query: Mapping[str, str], others: Iterable[str] = OTHER_KEYS) -> ModelFilter:
    """Read the filter of models from a query. An empty parameter selects everything.

    Raises FilterError for an unknown key or invalid value.
    """
    return read_query(ModelFilter, query, others)


def list_models(engine: Engine, selection: ModelFilter) -> list[ResultRow]:
    return filter_rows(merge_results(list_measured(engine, selection)), selection)


def list_measured(engine: Engine, selection: ModelFilter) -> list[ExperimentResult]:
    if not selection.run:
        return list_newest(engine, selection)
    of_run = engine.stream(RUN_SQL, _bind_selection(selection) | {"run_id": selection.run})
    return _filter_experiment(read_measured(of_run), selection)


def filter_rows(rows: Iterable[ResultRow], selection: ModelFilter) -> list[ResultRow]:
    return [
        row
        for row in rows
        if selection.status in (None, row.status)
        and selection.accuracy in (None, judge_accuracy(row))
    ]


def judge_accuracy(row: ResultRow) -> str:
    """Return which of ACCURACIES the accuracy check of a row found. An unknown verdict of a newer
    upstream passes if its name begins with pass.
    """
    return _judge_accuracy(row.accuracy, row.judge.status if row.judge else "")


def _judge_accuracy(accuracy: str | None, status: str) -> str:
    if accuracy is None:
        return {"failed": "fail", "skipped": "skipped"}.get(status, "not_measured")
    return "pass" if accuracy in HUD_PASSING or accuracy.startswith("pass") else "fail"


def list_newest(engine: Engine, selection: ModelFilter) -> list[ExperimentResult]:
    newest = filter_newest(
        read_measured(engine.stream(LATEST_SQL[engine.dialect], _bind_selection(selection)))
    )
    return _filter_experiment(newest, selection)


def _filter_experiment(results: Iterable[Measured], selection: ModelFilter) -> list[Measured]:
    return [result for result in results if selection.experiment in (None, result.experiment)]


def _bind_selection(selection: ModelFilter) -> dict[str, Any]:
    return {key: getattr(selection, key) for key in (*SET, "q")} | {"limit": MAX_RESULTS}


def list_brief_results(engine: Engine, selection: ModelFilter) -> list[BriefResult]:
    """List the results of `list_measured` with few columns: reading all columns of thousands takes
    0.1 s or more.
    """
    if selection.run:
        rows = engine.stream(RUN_BRIEF_SQL, _bind_selection(selection) | {"run_id": selection.run})
    else:
        rows = engine.stream(LATEST_BRIEF_SQL[engine.dialect], _bind_selection(selection))
    results = list(map(BriefResult._make, rows))
    results = _filter_experiment(results, selection)
    return results if selection.run else filter_newest(results)


def match_models(results: Iterable[BriefResult], selection: ModelFilter) -> set[tuple[str, str]]:
    answers: dict[tuple[Any, ...], str] = {}
    of_status = set()
    for result in results:
        if selection.status in (None, result.status):
            of_status.add((result.suite, result.model))
        status = result.status if result.experiment == "accuracy" else ""
        answer = _judge_accuracy(result.accuracy, status)
        if answer != "not_measured" or result[:_IDENTITY] not in answers:
            answers[result[:_IDENTITY]] = answer
    of_answer = {
        (key[0], key[-1]) for key, answer in answers.items() if selection.accuracy in (None, answer)
    }
    return of_status & of_answer


def list_results_of(engine: Engine, ids: Sequence[int]) -> list[ExperimentResult]:
    return list(read_measured(engine.stream(LISTED_SQL, {"ids": list(ids), "limit": len(ids)})))


def filter_newest(measured: Iterable[Measured]) -> list[Measured]:
    newest: dict[tuple[Key, str, int | None], Measured] = {}
    for result in assign_batch_sizes(measured):
        key = (
            result.key,
            result.experiment,
            result.batch_size if result.experiment == "performance" else None,
        )
        known = newest.get(key)
        if known is None or (known.time_us, known.id) < (result.time_us, result.id):
            newest[key] = result
    return list(newest.values())


def list_history(
    engine: Engine, model: str, suite: str | None = None
) -> list[tuple[ResultRow, tuple[ExperimentResult, ...]]]:
    values = {"model": model, "suite": suite, "limit": MAX_HISTORY}
    by_run: dict[str, list[ExperimentResult]] = {}
    for result in assign_batch_sizes(read_measured(engine.stream(HISTORY_SQL, values))):
        by_run.setdefault(result.run_id, []).append(result)
    history = [pair for measured in by_run.values() for pair in merge_with_parts(measured)]
    return sorted(history, key=lambda pair: (pair[0].time_us, pair[0].id), reverse=True)


def list_model_choices(engine: Engine) -> ModelChoices:
    columns = list(zip(*engine.rows(CHOICES_SQL))) or [()] * 7
    return ModelChoices(
        *(tuple(sorted({value for value in column if value})) for column in columns)
    )


def list_bench_runs(engine: Engine) -> list[BenchmarkRun]:
    sql = RUNS_SQL.format(has_results=HAS_RESULTS[engine.dialect])
    return [BenchmarkRun(**dict(row)) for row in engine.rows(sql, {"limit": 200})]
