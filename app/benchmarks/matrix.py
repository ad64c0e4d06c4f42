"""A suite as a matrix: a row per model, a column per experiment."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from compileboard.app.benchmarks.labels import (
    JudgedResult,
    describe_accuracy,
    describe_experiment,
    describe_speedup,
    describe_status,
    is_slower,
    is_wrong,
    split_backend,
)
from compileboard.app.benchmarks.metrics import BY_NAME, format_short
from compileboard.app.benchmarks.series import SetFields, label_fields
from compileboard.app.core.fields import Count
from compileboard.app.core.labels import Label
from compileboard.app.core.page import Page, check_order, decode_cursor, encode_cursor
from compileboard.app.core.schema import PRIVATE, published
from compileboard.collectors.store.results import (
    ALONE,
    EXPORTS,
    LEADING,
    BriefResult,
    ExperimentResult,
    ResultRow,
    fill,
)
from compileboard.collectors.store.rollups import (
    DEFINITIONS,
    HUD,
    SET,
    SUMMARIZE_PERF,
    SuiteSummary,
    filter_models,
    is_passing,
    summarize,
)

Row = TypeVar("Row")
_CONFIGURATION = attrgetter(*SET)

# Higher is more urgent.
_CONCERN = {"failed": 4, "not_run": 2, "skipped": 1, "measured": 0}


def _rank_severity(result: ResultRow) -> int:
    return 3 if result.status == "measured" and is_wrong(result) else _CONCERN.get(result.status, 0)


def rank_result(result: JudgedResult) -> tuple[int, float]:
    """Return a sort key by severity: failed, wrong, slower beyond noise, not started, then the
    rest, slowest first.
    """
    is_measured = result.status == "measured"
    if is_measured and not is_wrong(result):
        return 2 if is_slower(
            result
        ) else 0, -math.inf if result.speedup is None else -result.speedup
    return {"failed": 4, "measured": 3, "not_run": 1}.get(result.status, -1), 0.0


# Largest first, failures first for a status; a name that ends in .asc reverses it. Missing values
# come last either way.
ORDERS: dict[str, Callable[[ResultRow], Any]] = {
    "worst": rank_result,
    "model": lambda result: (result.model.lower(), result.suite.lower()),
    "status": _rank_severity,
    "accuracy": lambda result: result.accuracy,
    "speedup": lambda result: result.speedup,
    "latency": lambda result: result.abs_latency_ms,
    "compile_time": lambda result: result.compilation_latency_s,
    "memory": lambda result: result.dynamo_peak_mem_gb,
    "compression": lambda result: result.compression_ratio,
    "breaks": lambda result: result.graph_breaks,
    "recompiles": lambda result: result.recompiles,
    "ops": lambda result: result.calls_captured,
    "time": lambda result: result.time_us,
}
DEFAULT_ORDER = "worst"


@dataclass(frozen=True)
class AccuracyCounts:
    judged_count: int
    passed_count: int
    skipped_count: int


@dataclass(frozen=True)
class VerdictCounts:
    speedup_count: int
    faster_count: int
    slower_count: int
    unclear_count: int

    @property
    def unknown_count(self) -> int:
        return self.speedup_count - self.faster_count - self.slower_count - self.unclear_count


@dataclass(frozen=True)
class ConfigurationResults:
    fields: Mapping[str, Any]
    rows: Sequence[ResultRow]
    listed: Sequence[ResultRow]

    @property
    def label(self) -> str:
        return f"{self.fields['suite']}: {label_fields(self.fields)}"

    @cached_property
    def model_count(self) -> int:
        return len({row.model for row in self.rows})

    @cached_property
    def status_counts(self) -> Sequence[tuple[str, int]]:
        return Counter(row.status for row in self.rows).most_common()

    @cached_property
    def answers(self) -> AccuracyCounts:
        return count_accuracy(filter_models(self.rows))

    @cached_property
    def verdicts(self) -> VerdictCounts:
        return count_verdicts(filter_models(self.rows))

    @cached_property
    def summaries(self) -> Sequence[SuiteSummary]:
        return [summarize(self.rows, definition) for definition in DEFINITIONS.values()]

    @property
    def summary(self) -> SuiteSummary:
        return self._find_summary(HUD.name)

    @property
    def shown_summary(self) -> SuiteSummary:
        hud = self.summary
        return hud if hud.geomean_speedup is not None else self._find_summary(SUMMARIZE_PERF.name)

    def _find_summary(self, name: str) -> SuiteSummary:
        return next(summary for summary in self.summaries if summary.definition.name == name)


def group_results(rows: Sequence[ResultRow]) -> list[ConfigurationResults]:
    groups = [
        ConfigurationResults(dict(zip(SET, key)), members, ())
        for key, members in _split_configurations(rows).items()
    ]
    return sorted(groups, key=_rank_configuration, reverse=True)


def list_page(
    groups: Sequence[ConfigurationResults], listed: Sequence[ResultRow]
) -> list[ConfigurationResults]:
    listed_by_key = _split_configurations(listed)
    return [
        replace(group, listed=listed_by_key.get(tuple(group.fields.values()), ()))
        for group in groups
    ]


def _split_configurations(rows: Sequence[ResultRow]) -> dict[tuple[Any, ...], list[ResultRow]]:
    rows_by_key: dict[tuple[Any, ...], list[ResultRow]] = {}
    for row in rows:
        rows_by_key.setdefault(_CONFIGURATION(row), []).append(row)
    return rows_by_key


def _rank_configuration(group: ConfigurationResults) -> tuple[bool, int, int]:
    worst, _speedup = max(map(rank_result, group.rows))
    return bool(filter_models(group.rows)), worst, max(row.time_us for row in group.rows)


def count_accuracy(rows: Sequence[ResultRow]) -> AccuracyCounts:
    judged = [row for row in rows if row.accuracy is not None]
    skipped = sum(
        row.accuracy is None and row.judge is not None and row.judge.status == "skipped"
        for row in rows
    )
    return AccuracyCounts(len(judged), sum(is_passing(result) for result in judged), skipped)


def count_verdicts(rows: Sequence[ResultRow]) -> VerdictCounts:
    words = Counter(word.word for row in rows if (word := describe_speedup(row)) is not None)
    speedups = sum(row.speedup is not None for row in rows)
    return VerdictCounts(speedups, words["faster"], words["slower"], words["no clear difference"])


def sort_results(rows: Sequence[ResultRow], sort: str) -> list[ResultRow]:
    """Sort rows by a name in ORDERS. Raises FilterError for an unknown order."""
    order, direction = check_order(sort, ORDERS)
    key = ORDERS[order]
    keyed = [(key(row), row) for row in rows]
    known = sorted(
        (pair for pair in keyed if pair[0] is not None),
        key=itemgetter(0),
        reverse=direction != "asc",
    )
    return [row for _value, row in known] + [row for value, row in keyed if value is None]


def paginate(rows: Sequence[Row], cursor: str | None, limit: int) -> Page[Row]:
    """Return one page of rows. Raises FilterError for an unusable cursor."""
    (start,) = decode_cursor(cursor, int) or (0,)
    first = max(int(start), 0)
    end = first + limit
    return Page(tuple(rows[first:end]), encode_cursor(end) if end < len(rows) else None)


_FIRST = (*LEADING, *ALONE, "caching_precompile")
# The numbers a cell may show with their labels: the first two that were measured.
_SHOWN = {
    "speedup": "",
    "scaling_efficiency": "efficiency ",
    "quantized_error": "error ",
    "package_bytes": "",
    "second_process_latency_s": "second process ",
    "export_latency_s": "",
}
_MAX_NUMBERS = 2
_PLAIN = {"failed": "failed", "skipped": "skipped", "not_run": "not run"}


@dataclass(frozen=True)
class MatrixColumn(SetFields):
    """One experiment of one configuration."""

    experiment: Annotated[str, "What was measured: `performance`, `accuracy` …"]
    status_counts: Annotated[Mapping[str, Count], "How many models have each status, of all pages."]
    label: str = field(metadata=PRIVATE)

    @property
    def name(self) -> str:
        return describe_experiment(self.experiment)


class ColumnGroup(NamedTuple):
    label: str
    columns: Sequence[MatrixColumn]

    @property
    def filter(self) -> dict[str, str]:
        common = set.intersection(*(set(column.query.items()) for column in self.columns))
        return {
            name: value
            for name, value in self.columns[0].query.items()
            if value and (name, value) in common
        }


@dataclass(frozen=True)
class MatrixCell:
    """The result of one experiment of one model."""

    tables = ("results", "series")

    column: Annotated[Count, "Place of its column among the suite's, from 0."]
    state: Annotated[str, "Its state in words, as the page has it."]
    numbers: Annotated[str, "The numbers that matter most, written out."]
    status: str
    reason: str | None
    message: str | None
    batch_size: int | None
    run_id: str
    time_us: int
    id: int = field(metadata=PRIVATE)
    look: Label = field(metadata=PRIVATE)

    @property
    def query(self) -> str:
        return "&" + urlencode({"batch_size": self.batch_size or "", "run": self.run_id})

    @property
    def anchor(self) -> str:
        return f"failure-{self.id}" if self.status == "failed" else "point"


@dataclass(frozen=True)
class MatrixModel:
    """One row of the matrix: a model's results in each column."""

    model: Annotated[str, "Name of the model."]
    columns: Sequence[Sequence[MatrixCell]] = field(metadata=PRIVATE)

    @property
    @published
    def cells(
        self,
    ) -> Annotated[list[MatrixCell], "Results, in the order of the columns."]:
        return [cell for cells in self.columns for cell in cells]


@dataclass(frozen=True)
class Matrix:
    """One suite: a row per model, a column per configuration and experiment."""

    suite: Annotated[str, "Suite that the rows are of."]
    model_count: Annotated[Count, "Models of all pages."]
    columns: Annotated[Sequence[MatrixColumn], "One for each experiment of each configuration."]
    rows: Annotated[Sequence[MatrixModel], "The models of this page, the worst first."]
    common_label: str = field(metadata=PRIVATE)  # common to all configurations

    @cached_property
    def groups(self) -> Sequence[ColumnGroup]:
        return [
            ColumnGroup(label, list(columns))
            for label, columns in groupby(self.columns, attrgetter("label"))
        ]


def make_brief_results(measured: Iterable[ExperimentResult]) -> list[BriefResult]:
    return [
        BriefResult(*[getattr(result, name) for name in BriefResult._fields]) for result in measured
    ]


def has_several_configurations(results: Iterable[BriefResult]) -> bool:
    keys = {result[: len(SET)] for result in results}
    return len(keys) > len({key[0] for key in keys})


def order_models(results: Sequence[BriefResult]) -> list[tuple[str, str]]:
    worst: dict[tuple[str, str], tuple[int, float]] = {}
    for result in results:
        rank = rank_result(result)
        key = (result.suite, result.model)
        if key not in worst or rank > worst[key]:
            worst[key] = rank
    suites: dict[str, tuple[int, float]] = {}
    for (suite, _model), rank in worst.items():
        suites[suite] = max(rank, suites.get(suite, rank))
    ordered = sorted(worst, key=lambda key: (key[0], key[1].lower()))
    return sorted(ordered, key=lambda key: (suites[key[0]], key[0], worst[key]), reverse=True)


def build_matrices(
    results: Iterable[BriefResult],
    listed: Sequence[ExperimentResult],
    models: Sequence[tuple[str, str]],
) -> list[Matrix]:
    models_by_suite: dict[str, list[str]] = {}
    for suite, model in models:
        models_by_suite.setdefault(suite, []).append(model)
    counts: dict[str, dict[tuple[tuple[Any, ...], str], Counter[str]]] = {
        suite: {} for suite in models_by_suite
    }
    names: dict[str, set[str]] = {suite: set() for suite in models_by_suite}
    for result in results:
        if result.suite in counts:
            key = (result[: len(SET)], result.experiment)
            if key not in counts[result.suite]:
                counts[result.suite][key] = Counter()
            counts[result.suite][key][result.status] += 1
            names[result.suite].add(result.model)
    return [
        _build_matrix(
            suite,
            counts[suite],
            [result for result in listed if result.suite == suite],
            chosen,
            len(names[suite]),
        )
        for suite, chosen in models_by_suite.items()
    ]


def _build_matrix(
    suite: str,
    counts: Mapping[tuple[tuple[Any, ...], str], Counter[str]],
    listed: Iterable[ExperimentResult],
    models: Sequence[str],
    model_count: int,
) -> Matrix:
    configurations = [
        dict(zip(SET, key)) | {"dynamic": bool(key[SET.index("dynamic")])} for key, _name in counts
    ]
    parts = [_list_parts(fields, name) for fields, (_key, name) in zip(configurations, counts)]
    alike = set.intersection(*map(set, parts)) if len({key for key, _name in counts}) > 1 else set()
    common, different = _part_fields(configurations)
    columns_by_pair = {}
    for pair, fields, own in zip(counts, configurations, parts):
        told = {name: value for name, value in fields.items() if name in different}
        label = _join_labels(
            told | {"backend": "_".join(part for part in own if part not in alike)}
        )
        label = label or ("exports" if pair[1] in EXPORTS else "no backend")
        columns_by_pair[pair] = MatrixColumn(
            **fields, experiment=pair[1], status_counts=counts[pair], label=label
        )
    first: dict[str, tuple[int, str]] = {}
    for (_key, experiment), column in columns_by_pair.items():
        first[column.label] = min(
            _rank_experiment(experiment), first.get(column.label, _rank_experiment(experiment))
        )

    def order(pair: tuple[tuple[Any, ...], str]) -> tuple[Any, ...]:
        label = columns_by_pair[pair].label
        return (
            _order_configuration(pair[0]),
            first[label],
            label,
            _rank_experiment(pair[1]),
            str(pair[0]),
        )

    ordered = sorted(counts, key=order)
    columns = [columns_by_pair[pair] for pair in ordered]
    shared = [part for part in parts[0] if part in alike] if parts else []
    common_label = (
        _join_labels(common | {"backend": "_".join(shared)})
        if len(set(map(str, configurations))) > 1
        else ""
    )
    cells: dict[tuple[str, tuple[Any, ...]], list[MatrixCell]] = {}
    for result in listed:
        pair = tuple([getattr(result, name) for name in SET]), result.experiment
        cell = _make_cell(result, ordered.index(pair))
        cells.setdefault((result.model, pair), []).append(cell)
    rows = [
        MatrixModel(model, [cells.get((model, pair), ()) for pair in ordered]) for model in models
    ]
    return Matrix(suite, model_count, columns, rows, common_label)


def _make_cell(result: ExperimentResult, column: int) -> MatrixCell:
    numbers = [
        label
        + format_short(BY_NAME[name], value)
        + (_describe_noise(result) if name == "speedup" else "")
        for name, label in _SHOWN.items()
        if (value := getattr(result, name)) is not None
    ]
    if result.batch_size and result.experiment == "batch_size":
        numbers.append(f"batch {result.batch_size}")
    look, shown = describe_result(result), " · ".join(numbers[:_MAX_NUMBERS])
    own = {"column": column, "state": look.word, "numbers": shown, "look": look}
    return fill(MatrixCell, vars(result) | own)


def _describe_noise(result: ExperimentResult) -> str:
    low, high = result.speedup_low, result.speedup_high
    if low is None or high is None:
        return ", no interval"
    bounds = [format_short(BY_NAME["speedup"], value).removesuffix("×") for value in (low, high)]
    return f" ({'–'.join(bounds)})"


def describe_result(result: ExperimentResult) -> Label:
    if result.status != "measured":
        word = describe_status(result)
        if result.status == "failed":
            if result.experiment in EXPORTS and result.reason == "fail_to_run":
                word = word._replace(word="failed: does not run")
            return word if not result.message else word._replace(meaning=result.message[:300])
        return word._replace(word=_PLAIN.get(result.status, result.status), meaning=word.word)
    if result.accuracy is not None:
        return describe_accuracy(result.accuracy)
    return describe_speedup(result) or describe_status(result)


def _order_configuration(key: Sequence[Any]) -> tuple[int, str]:
    fields = dict(zip(SET, key))
    return fields["world_size"], fields["mode"] or ""


def _rank_experiment(experiment: str) -> tuple[int, str]:
    return (_FIRST.index(experiment) if experiment in _FIRST else len(_FIRST), experiment)


def _list_parts(fields: Mapping[str, Any], experiment: str) -> tuple[str, ...]:
    parts = split_backend(fields["backend"] or "")
    return parts[1:] if parts[:1] == (experiment,) else parts


def _part_fields(configurations: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], set[str]]:
    different = {name for name in SET if len({str(fields[name]) for fields in configurations}) > 1}
    common = (
        {name: value for name, value in configurations[0].items() if name not in different}
        if configurations
        else {}
    )
    return common, different


def _join_labels(fields: Mapping[str, Any]) -> str:
    empty: dict[str, Any] = dict.fromkeys(SET) | {"dynamic": False, "world_size": 1}
    known = empty | {name: value for name, value in fields.items() if name != "suite"}
    return (
        label_fields(known)
        if any(known[name] and known[name] != value for name, value in empty.items())
        else ""
    )
