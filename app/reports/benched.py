"""What of a report comes from a benchmark: its results as tables, and what a report for people shows of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compileboard.app.analysis.model_table import cut_page, find_alike, list_alike
from compileboard.app.analysis.rows import plain_row, result_row
from compileboard.app.analysis.summaries import DEFINITIONS, SuiteSummary, summarize
from compileboard.app.queries.page import Page
from compileboard.app.queries.result_rows import Measured, ResultRow, merge_results
from compileboard.app.queries.results import ResultParts, get_result_parts, list_measured
from compileboard.app.reports.source import select_source
from compileboard.app.reports.table import Row, Table

MOST_SHOWN = 300
MOST_FAILURES = 20


@dataclass(frozen=True)
class ShownResults:
    """Hold what a report for people shows: what needs a look first, and the failures of single experiments."""

    rows: Sequence[ResultRow]
    count: int
    summaries: Sequence[SuiteSummary]
    failures: Sequence[tuple[Measured, ResultParts]]
    failed_count: int
    same: Mapping[str, Any]
    alike: Sequence[str]


def read_shown(connection: sqlite3.Connection, run_id: str, source: bool) -> ShownResults | None:
    """Read what a report shows of a run's results, None where it has none."""
    measured = list_measured(connection, run_id)
    if not measured:
        return None
    rows = sorted(merge_results(measured), key=_urgency)
    failed = [it for it in measured if it.status == "failed"]
    parts = [(it, found) for it in failed[:MOST_FAILURES] if (found := get_result_parts(connection, it.id))]
    shown, texts = zip(*parts) if parts else ((), ())
    return ShownResults(
        rows=select_source(rows[:MOST_SHOWN], source),
        count=len(rows),
        summaries=[summarize(rows, it) for it in DEFINITIONS.values()],
        failures=list(zip(select_source(shown, source), select_source(texts, source))),
        failed_count=len(failed),
        same=(same := find_alike(rows)),
        alike=list_alike(same),
    )


def _urgency(it: ResultRow) -> tuple[object, ...]:
    """Put what failed first, then wrong answers, then the slowest."""
    wrong = it.accuracy is not None and not it.accuracy.startswith("pass")
    return (it.status != "failed", not wrong, it.status != "measured", it.speedup or 0.0, it.suite, it.model)


def _list_results(connection: sqlite3.Connection, run_id: str, **_page: Any) -> Page[Any]:
    return Page(tuple(merge_results(list_measured(connection, run_id))), None)


def _list_measurements(connection: sqlite3.Connection, run_id: str, cursor: str | None, limit: int) -> Page[Any]:
    page = cut_page(list_measured(connection, run_id), cursor, limit)
    return Page(tuple((it, get_result_parts(connection, it.id)) for it in page.rows), page.next)


def _measurement_row(found: tuple[Measured, ResultParts | None]) -> Row:
    it, parts = found
    return plain_row(it) | (plain_row(parts) if parts else {})


# A model and metric set a row; and what each experiment said, with its repeats, other numbers and traceback.
BENCH_TABLES = (
    Table("results", _list_results, result_row),
    Table("measurements", _list_measurements, _measurement_row),
)
