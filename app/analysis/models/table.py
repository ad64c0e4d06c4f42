"""Results as tables, one for each configuration: sort orders, pages and summaries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from compileboard.app.analysis.models.labels import (
    JudgedResult,
    describe_speedup,
    is_slower,
    is_wrong,
)
from compileboard.app.analysis.models.series import label_fields
from compileboard.app.queries.page import Page, check_order, decode_cursor, encode_cursor
from compileboard.collectors.store.rollups.results import ResultRow
from compileboard.collectors.store.rollups.summaries import (
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

# What a person looks for first has the highest number.
_CONCERN = {"failed": 4, "not_run": 2, "skipped": 1, "measured": 0}


def _severity(result: ResultRow) -> int:
    return 3 if result.status == "measured" and is_wrong(result) else _CONCERN.get(result.status, 0)


def rank_result(result: JudgedResult) -> tuple[int, float]:
    """Return how bad a result is: failed, wrong, slower beyond noise, not started, then the rest,
    slowest first.
    """
    is_measured = result.status == "measured"
    if is_measured and not is_wrong(result):
        return 2 if is_slower(
            result
        ) else 0, -math.inf if result.speedup is None else -result.speedup
    return {"failed": 4, "measured": 3, "not_run": 1}.get(result.status, -1), 0.0


# Largest first, of a status what failed; a name ends in .asc for the smallest first. What has no
# value comes last either way.
ORDERS: dict[str, Callable[[ResultRow], Any]] = {
    "worst": rank_result,
    "model": lambda result: (result.model.lower(), result.suite.lower()),
    "status": _severity,
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
class Answers:
    judged_count: int
    passed_count: int
    skipped_count: int


@dataclass(frozen=True)
class Verdicts:
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
    def answers(self) -> Answers:
        return count_answers(filter_models(self.rows))

    @cached_property
    def verdicts(self) -> Verdicts:
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


def count_answers(rows: Sequence[ResultRow]) -> Answers:
    judged = [row for row in rows if row.accuracy is not None]
    skipped = sum(
        row.accuracy is None and row.judge is not None and row.judge.status == "skipped"
        for row in rows
    )
    return Answers(len(judged), sum(is_passing(result) for result in judged), skipped)


def count_verdicts(rows: Sequence[ResultRow]) -> Verdicts:
    words = Counter(word.word for row in rows if (word := describe_speedup(row)) is not None)
    speedups = sum(row.speedup is not None for row in rows)
    return Verdicts(speedups, words["faster"], words["slower"], words["no clear difference"])


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


def cut_page(rows: Sequence[Row], cursor: str | None, limit: int) -> Page[Row]:
    """Raises FilterError for an unusable cursor."""
    (start,) = decode_cursor(cursor, int) or (0,)
    first = max(int(start), 0)
    end = first + limit
    return Page(tuple(rows[first:end]), encode_cursor(end) if end < len(rows) else None)
