"""Runs and summaries of trends, their filter, and runs that lack a suite's usual models."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Annotated, Any

from compileboard.app.benchmarks.series import SetFields
from compileboard.app.core.engine import Dialect, Engine, Row
from compileboard.app.core.newest import SHOWN_STATE, RunCandidate, find_newest_run
from compileboard.app.core.page import FilterError, check_content_id, check_whole
from compileboard.app.core.parameters import (
    MAX_CHARACTERS,
    BackendName,
    BranchName,
    DeviceName,
    DtypeName,
    HardwareName,
    ModeName,
    Parameter,
    SuiteName,
    list_names,
    read_filter,
)
from compileboard.app.core.rows import make_row
from compileboard.app.core.schema import Keywords
from compileboard.app.runs.queries import list_values
from compileboard.collectors.store.results import (
    COLUMNS,
    ResultRow,
    assign_batch_sizes,
    merge_results,
    read_measured,
)
from compileboard.collectors.store.rollups import (
    DEFINITIONS,
    HUD,
    NUMBERS,
    SET,
    SUMMARIZE_PERF,
    SuiteDefinition,
    SuiteNumbers,
)


def find_usual_count(measured_counts: Sequence[int]) -> float:
    return float(median(measured_counts)) if measured_counts else 0.0


def is_incomplete(measured_count: int, failed_count: int, usual: float) -> bool:
    """Return whether models failed that are usually measured."""
    return failed_count > 0 and measured_count < usual


MAX_RUNS = 2_000
MAX_MODEL_ROWS = 100_000  # the models of a page, MAX_RUNS each, several experiments per run
UNSAID = "unknown"  # In a URL: the value was not recorded.
_WORDS = SET[:-2]  # '' in the store where unknown

# SQLite has a run's environment in the facts of the run and its processes, ClickHouse in columns.
_RUNS_SQL = f"""
select
  r.id, coalesce($a.title, r.name) as name, {SHOWN_STATE} as state, r.started_us, r.git_commit,
  r.git_branch,
  r.git_subject, r.git_dirty, r.torch_version, r.gpu_name, {{driver_version}} as driver_version,
  {{triton_version}} as triton_version, r.python_version
from runs as r
$words
where r.id $in(:ids)
order by r.started_us, r.id
limit :limit
"""  # noqa: S608  own texts only
# In ClickHouse these are columns of the run, filled by app.clickhouse on publication.
DRIVER_VERSION = "json_extract(r.facts, '$.gpus[0].driver_version')"
TRITON_VERSION = """(
    select p.triton_version
    from processes as p
    where p.run_id = r.id
      and p.torch_version is not null
    order by p.started_us
    limit 1
  )"""
RUNS_SQL: Mapping[Dialect, str] = {
    "sqlite": _RUNS_SQL.format(driver_version=DRIVER_VERSION, triton_version=TRITON_VERSION),
    "clickhouse": _RUNS_SQL.format(
        driver_version="r.driver_version", triton_version="r.triton_version"
    ),
}
_OF_SERIES = {name: f"{{0}}.{name} = :{name}" for name in SET}
_OF_RUN = {
    "branch": "r.git_branch = :branch",
    "run": "r.id = :run",
    "commit": "substr(r.git_commit, 1, length(:commit)) = lower(:commit)",
    "torch": "r.torch_version = :torch",
    "since_us": "r.started_us >= :since_us",
    "until_us": "r.started_us < :until_us",
}


def _write_conditions(
    conditions: Mapping[str, str], given: Mapping[str, Any], alias: str = ""
) -> str:
    texts = (text.format(alias) for name, text in conditions.items() if given[name] is not None)
    return "\n  and ".join(texts) or "true"


# In ClickHouse a summary has its run's start: checking whether the run counts takes half the time
# of a join.
_SUMMARIES: Mapping[Dialect, str] = {
    "sqlite": """
from run_summaries as x
join runs as r on r.id = x.run_id
where {of_run}""",
    "clickhouse": """
from run_summaries_rows as x
where x.pub in (select r.pub from runs as r where {of_run})""",
}
_PLACED: Mapping[Dialect, Mapping[str, str]] = {
    "sqlite": {"started_us": "r.started_us", "run_id": "r.id"},
    "clickhouse": {"started_us": "x.started_us", "run_id": "x.run_id"},
}
_SET = ", ".join(f"x.{name}" for name in SET)
_NEWEST_FIRST = f"order by {{started_us}} desc, {{run_id}} desc, {_SET}"
_SUMMARY = (
    f"{', '.join(f'x.{name}' for name in (*SET, *NUMBERS))}, x.run_id, {{started_us}} as started_us"
)
_COUNTS = f"x.measured_count, {_SET}"
_MEASURED = len(SET) + NUMBERS.index("measured_count")
_OF_DEFINITION = "x.definition = :definition"
# The definition for runs without accuracy checks, which have no speedup by the others.
_TIMED = "x.definition = 'summarize_perf' and (x.speedup_count > 0 or x.failed_count > 0)"
_SETS = (
    f"{_SET}, count(*) as run_count, max({{started_us}}) as newest_us, max(x.total_count) as "
    "model_count"
)
_BY_SET = f"group by {_SET} order by newest_us desc, model_count desc, {_SET}"


def _summaries_sql(
    engine: Engine, columns: str, condition: str, order: str, values: Mapping[str, Any]
) -> str:
    of_run, of_set = _write_conditions(_OF_RUN, values), _write_conditions(_OF_SERIES, values, "x")
    return f"""
select {columns}
{_SUMMARIES[engine.dialect]}
  and {condition}
  and {of_set}
{order}
limit :limit
""".format(of_run=of_run, **_PLACED[engine.dialect])


# Reading a column takes as long as finding its row, so columns that are not drawn are left out.
_ALWAYS = frozenset(
    {"id", "run_id", "status", "reason", "accuracy", "time_us", "experiment", "task"}
)
_MODELS: Mapping[Dialect, str] = {
    "sqlite": """
select {columns}
from $each(:models) as wanted
join series as s on s.model = wanted.value
join results as x on x.series_id = s.id
join runs as r on r.id = x.run_id
where {of_series}
  and {of_run}
limit :limit
""",
    # Limits the rows before joining: the series to read and the runs to read them of.
    "clickhouse": """
with wanted as materialized (
  select *
  from series_rows as s
  where s.model $in(:models)
    and {of_series}
)
select {columns}
from (
  select *
  from results_rows
  where series_id in (select id from wanted)
    and pub in (select r.pub from runs as r where {of_run})
) as x
join wanted as s on s.id = x.series_id
limit :limit
""",
}
SETS_OF_SQL = f"""
select distinct {", ".join(SET)}
from series
where model = :model
limit 1000
"""  # noqa: S608 - our own names
MODEL_NAMES_SQL = """
select distinct model
from series
where suite = :suite
order by model
limit 10000
"""
MAX_BRANCHES = 500


@dataclass(frozen=True)
class PointRun:
    tables = ("runs", "run_annotations")

    name: Annotated[str, "The run's title, or its name."]
    state: Annotated[str, "The run's state."]
    started_us: int
    git_commit: str | None
    git_branch: str | None
    git_subject: str | None
    git_dirty: bool | None
    torch_version: str | None
    gpu_name: str | None
    driver_version: Annotated[str | None, "The GPU driver's version."]
    triton_version: Annotated[str | None, "Version of triton in the run."]
    python_version: str | None


@dataclass(frozen=True)
class TrendRun(PointRun):
    """A run on a trend's axis, with the environment that it was measured in."""

    id: str


@dataclass(frozen=True)
class ModelSet(SetFields):
    run_count: int = 0
    model_count: int = 0
    newest_us: int = 0

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(self.fields.values())


def _read_optional(_name: str, text: str) -> str:
    return "" if text == UNSAID else text


_WORD = Parameter(read=_read_optional)


@dataclass(frozen=True)
class TrendFilter:
    """Which results a trend includes.

    None selects all values of a field, and '' selects results that do not record it. `commit` is a
    prefix of a hash.
    """

    suite: Annotated[SuiteName, _WORD] = None
    mode: Annotated[ModeName, _WORD] = None
    dtype: Annotated[DtypeName, _WORD] = None
    device: Annotated[DeviceName, _WORD] = None
    hardware: Annotated[HardwareName, _WORD] = None
    backend: Annotated[BackendName, _WORD] = None
    dynamic: Annotated[
        bool | None,
        Parameter(choices=("no", "yes")),
        Keywords(pattern="^(yes|no)?$"),
        "`yes`: with dynamic shapes; `no`: without.",
    ] = None
    world_size: Annotated[
        int | None,
        Parameter(expected="a number from 1 to 1000000"),
        Keywords(minimum=1, maximum=1_000_000),
        "Ranks that it ran on.",
    ] = None
    branch: Annotated[BranchName, _WORD] = None
    run: str | None = None
    commit: str | None = None
    torch: str | None = None
    since_us: int | None = None
    until_us: int | None = None

    def includes(self, model_set: ModelSet) -> bool:
        words = all(
            getattr(self, name) in (None, getattr(model_set, name) or "") for name in _WORDS
        )
        return (
            words
            and self.dynamic in (None, model_set.dynamic)
            and self.world_size in (None, model_set.world_size)
        )

    def narrow(self, model_set: ModelSet) -> TrendFilter:
        words: dict[str, Any] = {name: getattr(model_set, name) or "" for name in _WORDS}
        return replace(self, **words, dynamic=model_set.dynamic, world_size=model_set.world_size)


@dataclass(frozen=True)
class StoredSummary(SuiteNumbers):
    run_id: str
    started_us: int
    set: ModelSet
    # Lacks models that failed and are usually measured, so its means are of other models.
    is_incomplete: bool = False


def _bind_selection(selection: TrendFilter) -> dict[str, Any]:
    values = {field.name: getattr(selection, field.name) for field in fields(selection)}
    return values | {"dynamic": None if selection.dynamic is None else int(selection.dynamic)}


def _read_set(row: Row | Mapping[str, Any], **counts: int) -> ModelSet:
    fields: dict[str, Any] = {name: row[name] or None for name in _WORDS}
    fields |= {
        "suite": row["suite"],
        "dynamic": bool(row["dynamic"]),
        "world_size": row["world_size"],
    }
    return ModelSet(**(fields | counts))


def list_sets(engine: Engine, branch: str | None = None) -> list[ModelSet]:
    counts = ("run_count", "model_count", "newest_us")
    values = _bind_selection(TrendFilter(branch=branch)) | {"limit": 1000}
    rows = engine.rows(
        _summaries_sql(engine, _SETS, "x.definition = 'hud'", _BY_SET, values), values
    )
    return [_read_set(row, **{name: row[name] for name in counts}) for row in rows]


def list_sets_of(engine: Engine, model: str) -> set[tuple[Any, ...]]:
    return {_read_set(row).key for row in engine.rows(SETS_OF_SQL, {"model": model})}


def list_summaries(
    engine: Engine, selection: TrendFilter, definition: str, limit: int = MAX_RUNS
) -> list[StoredSummary]:
    ever = replace(selection, run=None, commit=None, torch=None, since_us=None, until_us=None)
    values = _bind_selection(selection) | {
        "definition": definition,
        "limit": MAX_RUNS if ever == selection else limit,
    }
    rows = list(
        engine.stream(
            _summaries_sql(engine, _SUMMARY, _OF_DEFINITION, _NEWEST_FIRST, values), values
        )
    )
    if ever == selection:  # they define which models are usual
        usual = _find_usual_counts((row[_MEASURED], row[: len(SET)]) for row in rows)
    else:
        values = _bind_selection(ever) | {"definition": definition, "limit": MAX_RUNS}
        counted = engine.stream(
            _summaries_sql(engine, _COUNTS, _OF_DEFINITION, _NEWEST_FIRST, values), values
        )
        usual = _find_usual_counts((row[0], row[1:]) for row in counted)
    sets: dict[tuple[Any, ...], ModelSet] = {}
    summaries = []
    for row in rows[:limit]:
        key = row[: len(SET)]
        if key not in sets:
            sets[key] = _read_set(dict(zip(SET, key)))
        summary = StoredSummary(*(*row[len(SET) :], sets[key]))
        lacks = is_incomplete(summary.measured_count, summary.failed_count, usual.get(key, 0.0))
        summaries.append(replace(summary, is_incomplete=True) if lacks else summary)
    return summaries


def list_eligible_summaries(
    engine: Engine, selection: TrendFilter, definition: str | None, limit: int = MAX_RUNS
) -> tuple[SuiteDefinition, list[StoredSummary]]:
    """List summaries by a definition. None is the HUD's definition, or the one without accuracy if
    no run checked it.
    """
    summaries = list_summaries(engine, selection, definition or HUD.name, limit)
    if definition or any(
        summary.speedup_count or summary.passed_count is not None for summary in summaries
    ):
        return DEFINITIONS[definition or HUD.name], summaries
    return SUMMARIZE_PERF, list_summaries(engine, selection, SUMMARIZE_PERF.name, limit)


def find_newest_summary(
    summaries: Sequence[StoredSummary], timed: Container[str], running: Container[str]
) -> StoredSummary | None:
    newest = find_newest_run(
        RunCandidate(
            summary.run_id, summary.started_us, summary.run_id in running, summary.run_id in timed
        )
        for summary in summaries
    )
    return next((summary for summary in summaries if summary.run_id == newest), None)


def _find_usual_counts(
    measured: Iterable[tuple[int, tuple[Any, ...]]],
) -> dict[tuple[Any, ...], float]:
    counts: dict[tuple[Any, ...], list[int]] = {}
    for measured_count, key in measured:
        counts.setdefault(key, []).append(measured_count)
    return {key: find_usual_count(measured) for key, measured in counts.items()}


def list_timed_runs(engine: Engine, selection: TrendFilter) -> set[str]:
    values = _bind_selection(selection) | {"limit": 100_000}
    return {
        str(row[0])
        for row in engine.rows(_summaries_sql(engine, "x.run_id", _TIMED, "", values), values)
    }


def list_model_rows(
    engine: Engine,
    selection: TrendFilter,
    models: Sequence[str],
    columns: Iterable[str],
) -> list[ResultRow]:
    values = _bind_selection(selection) | {"models": list(models), "limit": MAX_MODEL_ROWS}
    by_run: dict[str, list[Any]] = {}
    selected = _ALWAYS | set(columns)
    some = re.sub(
        r"\bx\.(\w+)",
        lambda match: match[0] if match[1] in selected else f"null as {match[1]}",
        COLUMNS,
    )
    of_series, of_run = (
        _write_conditions(_OF_SERIES, values, "s"),
        _write_conditions(_OF_RUN, values),
    )
    sql = _MODELS[engine.dialect].format(columns=some, of_series=of_series, of_run=of_run)
    measured = assign_batch_sizes(read_measured(engine.stream(sql, values)))
    for result in sorted(
        measured, key=lambda result: result.id
    ):  # sorting keys alone is faster than whole rows
        by_run.setdefault(result.run_id, []).append(result)
    return [row for measured in by_run.values() for row in merge_results(measured)]


def list_trend_runs(
    engine: Engine, run_ids: Iterable[str], *, alive_since_us: int = 0
) -> list[TrendRun]:
    ids = sorted(set(run_ids))
    values = {"ids": ids, "limit": len(ids), "alive_since_us": alive_since_us}
    return [make_row(TrendRun, row) for row in engine.rows(RUNS_SQL[engine.dialect], values)]


def list_model_names(engine: Engine, suite: str) -> list[str]:
    return [str(row["model"]) for row in engine.rows(MODEL_NAMES_SQL, {"suite": suite})]


def list_branches(engine: Engine) -> list[str]:
    return list_values(engine, "git_branch", MAX_BRANCHES)


FILTERS = list_names(TrendFilter)
DEFAULT_LAST = "90"


def read_trend_filter(query: Mapping[str, str]) -> TrendFilter:
    """Read a trend's filter from a query. An empty parameter selects everything.

    Raises FilterError for an invalid value.
    """
    return read_filter(TrendFilter, query)


def read_text(query: Mapping[str, str], key: str) -> str | None:
    """Return a parameter, None if it is empty. Raises FilterError if it is too long."""
    value = query.get(key, "").strip()
    if len(value) > MAX_CHARACTERS:
        raise FilterError(f"{key}: must be at most {MAX_CHARACTERS} characters, got {len(value)}")
    return value or None


def read_choice(query: Mapping[str, str], key: str, choices: Iterable[str], default: str) -> str:
    """Return a parameter, or the default. Raises FilterError unless the value is one of
    `choices`.
    """
    text, choices = query.get(key, "").strip() or default, tuple(choices)
    if text not in choices:
        raise FilterError(f"{key}: {text[:40]!r} is not one of {', '.join(choices)}")
    return text


def parse_run_count(query: Mapping[str, str]) -> tuple[str, int]:
    """Return the `last` parameter as text and the number of runs it selects. Raises FilterError
    unless it is a number from 1 to MAX_RUNS or `all`.
    """
    text = query.get("last", "").strip() or DEFAULT_LAST
    if text == "all":
        return text, MAX_RUNS
    expected = f"a number from 1 to {MAX_RUNS} or all"
    return text, check_whole("last", text, 0, 1, MAX_RUNS, expected)


def read_ids(key: str, values: Iterable[str]) -> dict[str, int]:
    """Return values as ids. Raises FilterError for an invalid one."""
    return {text: check_content_id(key, text) for value in values if (text := value.strip())}


def model_set_parameters(model_set: ModelSet) -> dict[str, str]:
    query = {
        name: UNSAID if value is None else str(value) for name, value in model_set.fields.items()
    }
    return query | {"dynamic": "yes" if model_set.dynamic else "no"}


def choose_set(
    engine: Engine, sets: Sequence[ModelSet], selection: TrendFilter, model: str | None = None
) -> ModelSet | None:
    own = list_sets(engine, selection.branch) if selection.branch else sets
    fitting = [model_set for model_set in own if selection.includes(model_set)]
    if model and fitting:
        having = list_sets_of(engine, model)
        fitting = [model_set for model_set in fitting if model_set.key in having] or fitting
    return next(
        (model_set for model_set in sets if fitting and model_set.key == fitting[0].key), None
    )
