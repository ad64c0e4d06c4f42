"""The suite as a table: its orders, a page of it, and what each row is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from compileboard.app.analysis.models.labels import describe_speedup, is_wrong
from compileboard.app.analysis.models.series import label_fields
from compileboard.app.queries.page import Page, check_order, decode_cursor, encode_cursor
from compileboard.collectors.store.rollups.results import LEADING, ResultRow
from compileboard.collectors.store.rollups.summaries import SET, is_passing

Row = TypeVar("Row")

# What a person looks for first has the highest number.
_CONCERN = {"failed": 4, "not_run": 2, "skipped": 1, "measured": 0}


def _severity(result: ResultRow) -> int:
    return 3 if result.status == "measured" and is_wrong(result) else _CONCERN.get(result.status, 0)


# Largest first, of a status what failed; a name ends in .asc for the smallest first. What has no value comes last
# either way.
ORDERS: dict[str, Callable[[ResultRow], Any]] = {
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
DEFAULT_ORDER = "model.asc"
_SHOWN = ("suite", "mode", "dtype", "hardware", "backend", "batch_size")


@dataclass(frozen=True)
class SummedSet:
    """The rows of one configuration: what a summary formula sums up."""

    fields: Mapping[str, Any]
    rows: Sequence[ResultRow]

    @property
    def label(self) -> str:
        """Name it as people do, its suite first."""
        return f"{self.fields['suite']}: {label_fields(self.fields)}"


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


def part_sets(rows: Sequence[ResultRow]) -> list[SummedSet]:
    """Group rows by their configuration, the one measured last first; what is no headline's is in none."""
    rows_by_set: dict[tuple[Any, ...], list[ResultRow]] = {}
    for row in rows:
        if not set(LEADING).isdisjoint(row.experiments):
            rows_by_set.setdefault(tuple(getattr(row, name) for name in SET), []).append(row)
    sets = [SummedSet(dict(zip(SET, key)), members) for key, members in rows_by_set.items()]
    return sorted(sets, key=lambda summed_set: max(row.time_us for row in summed_set.rows), reverse=True)


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


def find_alike(rows: Sequence[ResultRow]) -> dict[str, Any]:
    """Return what is the same in all rows, so that it is said once."""
    return {name: getattr(rows[0], name) for name in _SHOWN if len({getattr(row, name) for row in rows}) == 1}


def list_comparable_sets(same: Mapping[str, Any]) -> list[str]:
    """Write what is the same in all rows as words."""
    return [f"batch {entry}" if name == "batch_size" else str(entry) for name, entry in same.items() if entry]


def sort_results(rows: Sequence[ResultRow], sort: str) -> list[ResultRow]:
    """Sort rows by a name in ORDERS; rows that are equal in it stay in the order of suite and model.

    Raises: FilterError if there is no such order.
    """
    order, direction = check_order(sort, ORDERS)
    key = ORDERS[order]
    known = [row for row in rows if key(row) is not None]
    return sorted(known, key=key, reverse=direction != "asc") + [row for row in rows if key(row) is None]


def cut_page(rows: Sequence[Row], cursor: str | None, limit: int) -> Page[Row]:
    """Cut a page out of rows that are all there.

    Raises: FilterError if the cursor cannot be used.
    """
    (start,) = decode_cursor(cursor, int) or (0,)
    first = max(int(start), 0)
    end = first + limit
    return Page(tuple(rows[first:end]), encode_cursor(end) if end < len(rows) else None)
