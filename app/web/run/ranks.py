"""The Ranks page of a run: where ranks part, in which aspects, and which of them is slow."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, request

from compileboard.app.analysis import labels
from compileboard.app.analysis.compiles import label_category
from compileboard.app.analysis.ranks.comparison import ASPECTS, RankComparison, read_comparison
from compileboard.app.analysis.ranks.divergence import (
    describe_caches,
    describe_differences,
    describe_times,
    list_verdicts,
    name_ranks,
    read_divergence,
)
from compileboard.app.charts.ranks import chart_ranks
from compileboard.app.db import get_reader
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.run.ranks import RankCompile, list_names
from compileboard.app.web.run.shell import find_run, render_run

blueprint = Blueprint("ranks", __name__)

ROWS = 50
COLUMNS = 12
SPREADS = 8


def _read_start(name: str) -> int:
    given = request.args.get(name, "")
    if given and not (given.isascii() and given.isdigit() and len(given) < 8):
        raise FilterError(f"{name}: {given[:40]!r} is not a whole number")
    return int(given or 0)


def _lay_out(found: RankComparison) -> dict[str, Any]:
    """Cut the aligned table to what one page shows."""
    given = request.args.get("rows", "")
    if given not in ("", "all"):
        raise FilterError(f"rows: {given[:40]!r} is not all")
    differing = [row for row in found.rows if row.differs]
    rows = found.rows if given == "all" else differing
    start, first = _read_start("start"), _read_start("column")
    return {
        "all_rows": given == "all",
        "differing_count": len(differing),
        "rows": [(row, row.cells[first : first + COLUMNS]) for row in rows[start : start + ROWS]],
        "row_count": len(rows),
        "start": start,
        "columns": [(name_ranks(ranks), len(ranks)) for ranks in found.columns[first : first + COLUMNS]],
        "column": first,
    }


def _explain(found: RankComparison, table: dict[str, Any]) -> dict[str, Any]:
    """Read the names and guards of what the page shows."""
    reader = get_reader()
    spreads = sorted((row for row in found.rows if row.rank_count > 1), key=lambda row: -row.spread_us)[:SPREADS]
    shown: list[RankCompile | None] = [cell for row, _cells in table["rows"] for cell in row.cells]
    shown += [cell for row in spreads for cell in row.cells]
    names = list_names(reader, {it.function_id for it in shown if it and it.function_id is not None})
    it = read_divergence(reader, found)
    return {
        "names": names,
        "spreads": spreads,
        "parting": it.said,
        "why": it.why,
        "partial": it.partial,
        "partial_count": it.partial_count,
    }


@blueprint.get("/runs/<run_id>/ranks")
def show(run_id: str) -> str:
    """Show where the ranks of a run differ."""
    detail = find_run(run_id)
    found = read_comparison(get_reader(), run_id)
    context: dict[str, Any] = {"found": found, "words": labels, "label_category": label_category, "has_charts": False}
    if found is not None:
        table = _lay_out(found)
        timed = any(it.total_us for it in found.ranks)
        context |= table | _explain(found, table)
        context |= {
            "aspects": ASPECTS,
            "summary": describe_differences(found),
            "times": describe_times(found.ranks),
            "verdicts": [(name_ranks(ranks), ranks, said) for ranks, said in list_verdicts(found)],
            "chart": chart_ranks(found.ranks) if timed else None,
            "has_charts": timed,
            "describe_caches": describe_caches,
            "rows_at_once": ROWS,
            "columns_at_once": COLUMNS,
        }
    return render_run(detail, "ranks/index.html", tab="ranks", **context)
