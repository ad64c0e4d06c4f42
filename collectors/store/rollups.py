"""Pass rate, geomean speedup and other headline numbers of a suite, by three definitions in use.

Every number is shown with its definition's name. A 0 in PyTorch's files (failed or not measured) is
None here. If a definition counts 0 as measured, None is treated as 0. Source: test-infra
torchci/lib/benchmark/compilerUtils.ts; pytorch benchmarks/dynamo/runner.py, summarize_perf.py
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

from compileboard.collectors.contract.records import TABLES, published
from compileboard.collectors.store.results import (
    ALONE,
    COLUMNS,
    EXPORTS,
    LEADING,
    ResultRow,
    merge_results,
    read_measured,
)

HUD_PASSING = frozenset({"pass", "pass_due_to_skip", "eager_variation"})
RUNNER_PASSING = frozenset({"pass", "pass_due_to_skip"})
_HEADLINE = frozenset((*LEADING, *ALONE))
_EAGER = frozenset({"eager", "inductor_eager"})
_EXPORT = frozenset({*EXPORTS, "inductor_export"})


Take = Callable[[ResultRow], "float | None"]
Total = Callable[[Sequence["float | None"]], "float | None"]


class Number(NamedTuple):
    """The formula of one number: the rows that count, the value of a row (None is skipped), and the
    aggregate of these values.
    """

    of: Callable[[ResultRow], bool]
    take: Take
    total: Total

    def get(self, row: ResultRow) -> float | None:
        return self.take(row) if self.of(row) else None

    def sum_up(self, rows: Iterable[ResultRow]) -> float | None:
        return self.total([self.take(row) for row in rows if self.of(row)])


def geomean(values: Sequence[float]) -> float | None:
    """Return the geometric mean, 0 if any value is 0, None if empty. It is computed with
    logarithms, which cannot overflow.
    """
    if not values or any(value < 0 for value in values):
        return None
    return 0.0 if 0 in values else math.exp(math.fsum(map(math.log, values)) / len(values))


def _geomean(values: Sequence[float | None]) -> float | None:
    return geomean([value for value in values if value is not None])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _mean_with_zeros(values: Sequence[float | None]) -> float | None:
    return (
        _mean([value or 0.0 for value in values])
        if any(value is not None for value in values)
        else None
    )


def _not_zero(name: str) -> Take:
    get = attrgetter(name)
    return lambda row: get(row) or None


def _positive(name: str) -> Take:
    get = attrgetter(name)
    return lambda row: value if (value := get(row)) is not None and value > 0 else None


def _at_least_one(row: ResultRow) -> float | None:
    return max(row.speedup, 1.0) if row.speedup is not None and row.speedup > 0 else None


def is_passing(row: ResultRow) -> bool:
    return row.backend in _EAGER or row.accuracy in HUD_PASSING


def _passes_runner(row: ResultRow) -> bool:
    return row.accuracy in RUNNER_PASSING


def _has_speedup(row: ResultRow) -> bool:
    return bool(row.speedup)


def _any(_row: ResultRow) -> bool:
    return True


def _counts_for_hud(row: ResultRow) -> bool:
    if row.accuracy == "pass_due_to_skip":
        return True
    return is_passing(row) and (bool(row.speedup) or _is_export(row))


def _is_export(row: ResultRow) -> bool:
    """Return whether HUD needs no speedup: decided by the backend in files, by the experiment in
    our own runs.
    """
    return row.backend in _EXPORT or any(name in EXPORTS for name in row.experiments)


def _counts_for_runner(row: ResultRow) -> bool:
    return _passes_runner(row) and _at_least_one(row) is not None


# Means over the models that have the number: no definition has them.
_OURS = {
    "graph_breaks_per_model": Number(_any, attrgetter("graph_breaks"), _mean),
    "recompiles_per_model": Number(_any, attrgetter("recompiles"), _mean),
    **{
        name: Number(_any, attrgetter(name), _mean)
        for name in ("load_latency_s", "package_bytes", "scaling_efficiency", "quantized_error")
    },
}


class SuiteDefinition(NamedTuple):
    """A named definition of a suite's numbers; `passes` is None if it has no pass rate."""

    name: str
    label: str
    pass_rate: str
    geomean: str
    passes: Callable[[ResultRow], bool] | None
    numbers: Mapping[str, Number]

    @property
    def has_pass_rate(self) -> bool:
        return self.passes is not None


HUD = SuiteDefinition(
    "hud",
    "PyTorch HUD",
    (
        "models whose accuracy passes and that have a speedup, or that pass because a rule skips "
        "them, of all"
    ),
    "over the models whose accuracy passes",
    _counts_for_hud,
    {
        "geomean_speedup": Number(is_passing, _not_zero("speedup"), _geomean),
        "compilation_latency_s": Number(is_passing, _not_zero("compilation_latency_s"), _mean),
        "abs_latency_ms": Number(is_passing, _not_zero("abs_latency_ms"), _mean),
        "compression_ratio": Number(is_passing, _not_zero("compression_ratio"), _mean),
        # HUD leaves a 0 in this mean alone.
        "dynamo_peak_mem_gb": Number(
            is_passing, attrgetter("dynamo_peak_mem_gb"), _mean_with_zeros
        ),
        **_OURS,
    },
)
RUNNER = SuiteDefinition(
    "runner",
    "runner.py",
    "models whose accuracy passes and that have a speedup, of all",
    "over those models, each slowdown counted as 1",
    _counts_for_runner,
    {
        "geomean_speedup": Number(_passes_runner, _at_least_one, _geomean),
        "compilation_latency_s": Number(_passes_runner, _positive("compilation_latency_s"), _mean),
        "abs_latency_ms": Number(_passes_runner, _positive("abs_latency_ms"), _mean),
        "compression_ratio": Number(_passes_runner, _positive("compression_ratio"), _mean),
        **_OURS,
    },
)
SUMMARIZE_PERF = SuiteDefinition(
    "summarize_perf",
    "summarize_perf.py",
    "it has none",
    "over every model that has a speedup, wrong or right",
    None,
    {
        "geomean_speedup": Number(_has_speedup, attrgetter("speedup"), _geomean),
        "compilation_latency_s": Number(_has_speedup, attrgetter("compilation_latency_s"), _mean),
        "compression_ratio": Number(_has_speedup, attrgetter("compression_ratio"), _geomean),
        **_OURS,
    },
)
DEFINITIONS = {definition.name: definition for definition in (HUD, RUNNER, SUMMARIZE_PERF)}


@dataclass(frozen=True)
class SuiteNumbers:
    tables = ("run_summaries",)

    total_count: int
    measured_count: int
    failed_count: int
    passed_count: int | None
    speedup_count: int
    geomean_speedup: float | None
    compilation_latency_s: float | None
    abs_latency_ms: float | None
    compression_ratio: float | None
    dynamo_peak_mem_gb: float | None
    graph_breaks_per_model: float | None
    recompiles_per_model: float | None
    load_latency_s: float | None
    package_bytes: float | None
    scaling_efficiency: float | None
    quantized_error: float | None

    @property
    @published
    def pass_ratio(self) -> Annotated[float | None, "Models that pass ÷ models."]:
        return (
            None
            if self.passed_count is None or not self.total_count
            else self.passed_count / self.total_count
        )


_NO_NUMBERS: dict[str, Any] = {
    field.name: None for field in fields(SuiteNumbers) if not field.name.endswith("_count")
}


@dataclass(frozen=True)
class SuiteSummary(SuiteNumbers):
    definition: SuiteDefinition


def filter_models(rows: Iterable[ResultRow]) -> list[ResultRow]:
    """Return the rows that count: performance, accuracy, and experiments that are backends of their
    own.
    """
    return [row for row in rows if not _HEADLINE.isdisjoint(row.experiments)]


def summarize(rows: Sequence[ResultRow], definition: SuiteDefinition = HUD) -> SuiteSummary:
    rows = filter_models(rows)
    numbers = {name: number.sum_up(rows) for name, number in definition.numbers.items()}
    speedup = definition.numbers["geomean_speedup"]
    return SuiteSummary(
        definition=definition,
        total_count=len(rows),
        passed_count=count_passed(rows, definition),
        speedup_count=sum(speedup.get(row) is not None for row in rows),
        measured_count=sum(row.status == "measured" for row in rows),
        failed_count=sum(row.status == "failed" for row in rows),
        **{**_NO_NUMBERS, **numbers},
    )


def count_passed(rows: Sequence[ResultRow], definition: SuiteDefinition) -> int | None:
    passes = definition.passes
    judged = any(row.accuracy or (definition is HUD and row.backend in _EAGER) for row in rows)
    timed = any("performance" in row.experiments or row.speedup or _is_export(row) for row in rows)
    return sum(map(passes, rows)) if passes and judged and timed else None


# What the models of one summary have in common: what tells series apart, but for the model and its
# batch size.
SET = ("suite", "mode", "dtype", "device", "hardware", "backend", "dynamic", "world_size")
NUMBERS = tuple(field.name for field in fields(SuiteNumbers))

# The statements name our own columns alone; every value is bound.
OF_SUITE_SQL = f"""
select {COLUMNS}
from results as x
join series as s on s.id = x.series_id
where x.run_id = :run_id
  and s.suite = :suite
"""  # noqa: S608 - our own names
ADD = f"insert {TABLES['run_summaries'].insert_sql()}"


def write_summaries(connection: sqlite3.Connection, run_id: str, suites: Iterable[str]) -> None:
    for suite in sorted(suites):
        key = {"run_id": run_id, "suite": suite}
        rows = merge_results(read_measured(connection.execute(OF_SUITE_SQL, key)))
        connection.execute(
            "delete from run_summaries where run_id = :run_id and suite = :suite", key
        )
        connection.executemany(ADD, sum_up(run_id, rows))


def sum_up(run_id: str, rows: list[ResultRow]) -> list[dict[str, Any]]:
    sets: dict[tuple[Any, ...], list[ResultRow]] = {}
    for row in rows:
        sets.setdefault(_find_set(row), []).append(row)
    summaries = []
    for key, members in sets.items():
        common = {
            "run_id": run_id,
            "time_us": max(result.time_us for result in members),
            **dict(zip(SET, key)),
        }
        for definition in DEFINITIONS.values():
            summary = summarize(members, definition)
            if summary.total_count:
                summaries.append(common | {"definition": definition.name, **_number(summary)})
    return summaries


def _find_set(row: ResultRow) -> tuple[Any, ...]:
    texts = tuple(getattr(row, name) or "" for name in SET[:-2])
    return (*texts, int(row.dynamic), row.world_size)


def _number(summary: SuiteSummary) -> dict[str, Any]:
    return {name: getattr(summary, name) for name in NUMBERS}


# What only hooks and torch's logs count.
COMPILER_COUNTS = (
    "compile_count",
    "record_count",
    "graph_break_count",
    "recompile_count",
    "recompile_limit_count",
    "failure_count",
    "skipped_frame_count",
    "restart_count",
    "cache_hit_count",
    "cache_miss_count",
    "cache_bypass_count",
    "cudagraph_skip_count",
    "cudagraph_recording_count",
    "cudagraph_rerecording_count",
)
RUN_COLUMNS = TABLES["run_totals"].list_names("run_id")
RUN_COUNTS = tuple(name for name in RUN_COLUMNS if name.endswith("_count"))


@dataclass(frozen=True)
class RollupTable:
    """One roll-up table and its second key."""

    table: str
    key: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Return its counters."""
        return TABLES[self.table].list_names("run_id", self.key)


FUNCTIONS = RollupTable("run_functions", "function_id")
BREAKS = RollupTable("run_breaks", "distinct_id")
CAUSES = RollupTable("run_causes", "cause_id")
RERECORDINGS = RollupTable("run_rerecordings", "reason_id")
ISSUES = RollupTable("run_issues", "issue_id")


class BatchTotals:
    def __init__(self, connection: sqlite3.Connection, run_id: str) -> None:
        self.connection = connection
        self.run_id = run_id
        self.abandoned_causes: set[int] = set()  # those that a recompile moved away from
        self._run: Counter[str] = Counter()
        self._rollups: dict[RollupTable, dict[int, Counter[str]]] = {
            rollup: defaultdict(Counter)
            for rollup in (FUNCTIONS, BREAKS, CAUSES, RERECORDINGS, ISSUES)
        }

    def add(self, **increments: int) -> None:
        _add_up(self._run, increments)

    def add_to(self, rollup: RollupTable, key: int | None, **increments: int) -> None:
        if key is not None:
            _add_up(self._rollups[rollup][key], increments)

    def flush(self) -> None:
        if self._run:
            assignments = ", ".join(f"{column} = {column} + :{column}" for column in RUN_COLUMNS)
            self.connection.execute(
                f"update run_totals set {assignments} where run_id = :run_id",  # noqa: S608 - our own column names
                {"run_id": self.run_id, **{column: self._run[column] for column in RUN_COLUMNS}},
            )
        for rollup, rows in self._rollups.items():
            self._flush_rollup(rollup, rows)
        for cause_id in self.abandoned_causes:
            self._drop_cause(cause_id)

    def _drop_cause(self, cause_id: int) -> None:
        key = {"run_id": self.run_id, "cause_id": cause_id}
        self.connection.execute(
            (
                "delete from run_causes where run_id = :run_id and cause_id = :cause_id and "
                "recompile_count = 0"
            ),
            key,
        )
        self.connection.execute(
            """
            delete from recompile_causes
            where id = :cause_id and not exists (select 1 from run_causes
              where cause_id = :cause_id)
            """,
            key,
        )

    def _flush_rollup(self, rollup: RollupTable, rows: dict[int, Counter[str]]) -> None:
        columns = rollup.columns
        updates = ", ".join(f"{column} = {column} + excluded.{column}" for column in columns)
        self.connection.executemany(
            (
                f"insert {TABLES[rollup.table].insert_sql()} on conflict (run_id, {rollup.key}) "
                f"do update set {updates}"
            ),
            [
                {
                    "run_id": self.run_id,
                    rollup.key: key,
                    **{column: counts[column] for column in columns},
                }
                for key, counts in rows.items()
            ],
        )


def _add_up(counts: Counter[str], increments: Mapping[str, int]) -> None:
    for (
        name,
        count,
    ) in increments.items():  # Counter.update first asks what it was given: half of its time
        counts[name] += count
