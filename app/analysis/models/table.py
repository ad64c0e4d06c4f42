"""Results as tables, one a configuration: their orders, a page of them, and what each table comes to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from compileboard.app.analysis.models.labels import JudgedResult, describe_speedup, is_slower, is_wrong
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
    """Return how bad a result is: failed, wrong, slower beyond noise, not started, the rest; of these the slowest."""
    is_measured = result.status == "measured"
    if is_measured and not is_wrong(result):
        return 2 if is_slower(result) else 0, -math.inf if result.speedup is None else -result.speedup
    return {"failed": 4, "measured": 3, "not_run": 1}.get(result.status, -1), 0.0


# Largest first, of a status what failed; a name ends in .asc for the smallest first. What has no value comes last
# either way.
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
    """Counts of the outcomes of accuracy checks."""

    judged_count: int
    passed_count: int
    skipped_count: int


@dataclass(frozen=True)
class Verdicts:
    """Counts of speedups beyond noise, and of those without an interval."""

    speedup_count: int
    faster_count: int
    slower_count: int
    unclear_count: int

    @property
    def unknown_count(self) -> int:
        """Return how many have no interval."""
        return self.speedup_count - self.faster_count - self.slower_count - self.unclear_count


@dataclass(frozen=True)
class ConfigurationResults:
    """The results of one configuration: `rows` are all of them, `listed` those of its table on this page."""

    fields: Mapping[str, Any]
    rows: Sequence[ResultRow]
    listed: Sequence[ResultRow]

    @property
    def label(self) -> str:
        """Name it as people do, its suite first."""
        return f"{self.fields['suite']}: {label_fields(self.fields)}"

    @cached_property
    def model_count(self) -> int:
        """Return how many models it has: one may be in several batch sizes."""
        return len({row.model for row in self.rows})

    @cached_property
    def status_counts(self) -> Sequence[tuple[str, int]]:
        """Return how many rows have each status, the commonest first."""
        return Counter(row.status for row in self.rows).most_common()

    @cached_property
    def answers(self) -> Answers:
        """Return what its accuracy checks came to."""
        return count_answers(filter_models(self.rows))

    @cached_property
    def verdicts(self) -> Verdicts:
        """Return how many of its models are faster or slower."""
        return count_verdicts(filter_models(self.rows))

    @cached_property
    def summaries(self) -> Sequence[SuiteSummary]:
        """Return its summary by each definition."""
        return [summarize(self.rows, definition) for definition in DEFINITIONS.values()]

    @property
    def summary(self) -> SuiteSummary:
        """Return the summary by PyTorch HUD's definition."""
        return self._find_summary(HUD.name)

    @property
    def shown_summary(self) -> SuiteSummary:
        """Return the summary whose means are shown: HUD's or, where that has none, that which asks for a time alone."""
        hud = self.summary
        return hud if hud.geomean_speedup is not None else self._find_summary(SUMMARIZE_PERF.name)

    def _find_summary(self, name: str) -> SuiteSummary:
        return next(summary for summary in self.summaries if summary.definition.name == name)


def group_results(rows: Sequence[ResultRow]) -> list[ConfigurationResults]:
    """Group rows by configuration, the one with the worst row first, then the one measured last."""
    groups = [
        ConfigurationResults(dict(zip(SET, key)), members, ()) for key, members in _split_configurations(rows).items()
    ]
    return sorted(groups, key=_rank_configuration, reverse=True)


def list_page(groups: Sequence[ConfigurationResults], listed: Sequence[ResultRow]) -> list[ConfigurationResults]:
    """Return the groups with those of their rows that a page has."""
    listed_by_key = _split_configurations(listed)
    return [replace(group, listed=listed_by_key.get(tuple(group.fields.values()), ())) for group in groups]


def _split_configurations(rows: Sequence[ResultRow]) -> dict[tuple[Any, ...], list[ResultRow]]:
    rows_by_key: dict[tuple[Any, ...], list[ResultRow]] = {}
    for row in rows:
        rows_by_key.setdefault(_CONFIGURATION(row), []).append(row)
    return rows_by_key


def _rank_configuration(group: ConfigurationResults) -> tuple[bool, int, int]:
    worst, _speedup = max(map(rank_result, group.rows))
    return bool(filter_models(group.rows)), worst, max(row.time_us for row in group.rows)


def count_answers(rows: Sequence[ResultRow]) -> Answers:
    """Count the accuracy checks that have a verdict, those that pass, and those that were skipped."""
    judged = [row for row in rows if row.accuracy is not None]
    skipped = sum(row.accuracy is None and row.judge is not None and row.judge.status == "skipped" for row in rows)
    return Answers(len(judged), sum(is_passing(result) for result in judged), skipped)


def count_verdicts(rows: Sequence[ResultRow]) -> Verdicts:
    """Count how many models are faster or slower than eager mode beyond noise."""
    words = Counter(word.word for row in rows if (word := describe_speedup(row)) is not None)
    speedups = sum(row.speedup is not None for row in rows)
    return Verdicts(speedups, words["faster"], words["slower"], words["no clear difference"])


def sort_results(rows: Sequence[ResultRow], sort: str) -> list[ResultRow]:
    """Sort rows by a name in ORDERS; rows that are equal in it stay in the order of suite and model.

    Raises: FilterError if there is no such order.
    """
    order, direction = check_order(sort, ORDERS)
    key = ORDERS[order]
    keyed = [(key(row), row) for row in rows]
    known = sorted((pair for pair in keyed if pair[0] is not None), key=itemgetter(0), reverse=direction != "asc")
    return [row for _value, row in known] + [row for value, row in keyed if value is None]


def cut_page(rows: Sequence[Row], cursor: str | None, limit: int) -> Page[Row]:
    """Cut a page out of rows that are all there.

    Raises: FilterError if the cursor cannot be used.
    """
    (start,) = decode_cursor(cursor, int) or (0,)
    first = max(int(start), 0)
    end = first + limit
    return Page(tuple(rows[first:end]), encode_cursor(end) if end < len(rows) else None)
