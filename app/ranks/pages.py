"""The Ranks page of a run, and its API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from flask import Blueprint, request

from compileboard.app.core.api import operation
from compileboard.app.core.db import get_run_reader
from compileboard.app.core.page import FilterError, check_whole
from compileboard.app.core.parameters import Parameter
from compileboard.app.ranks.charts import chart_ranks
from compileboard.app.ranks.model import (
    RanksReport,
    RanksScreen,
    build_ranks,
    name_ranks,
    read_names,
    report_ranks,
)
from compileboard.app.ranks.run_queries import RankCompile
from compileboard.app.runs.run_queries import RunDetail
from compileboard.app.runs.shell import find_run, render_run

blueprint = Blueprint("ranks", __name__)

ROWS = 50
COLUMNS = 12


def _lay_out(run_id: str, screen: RanksScreen) -> dict[str, Any]:
    given = request.args.get("rows", "")
    if given not in ("", "all"):
        raise FilterError(f"rows: {given[:40]!r} is not all")
    rows, groups = screen.list_rows(given == "all"), screen.comparison.columns
    start, first = (
        check_whole(name, request.args.get(name), 0, maximum=10**7 - 1)
        for name in ("start", "column")
    )
    shown, spreads = rows[start : start + ROWS], screen.spreads
    cells: list[RankCompile | None] = [cell for row in (*shown, *spreads) for cell in row.cells]
    return {
        "all_rows": given == "all",
        "differing_count": len(screen.list_rows()),
        "compile_count": len(screen.comparison.rows),
        "rows": [(row, row.cells[first : first + COLUMNS]) for row in shown],
        "row_count": len(rows),
        "start": start,
        "columns": [(name_ranks(ranks), len(ranks)) for ranks in groups[first : first + COLUMNS]],
        "column_count": len(groups),
        "column": first,
        "rows_at_once": ROWS,
        "columns_at_once": COLUMNS,
        "names": read_names(get_run_reader(run_id), cells),
    }


@blueprint.get("/runs/<run_id>/ranks")
def show(run_id: str) -> str:
    detail = find_run(run_id)
    screen = build_ranks(get_run_reader(run_id), run_id)
    is_timed = screen is not None and screen.is_timed
    return render_run(
        detail,
        "ranks/index.html",
        tab="ranks",
        screen=screen,
        name_ranks=name_ranks,
        has_charts=is_timed,
        chart=chart_ranks(screen.comparison.ranks) if screen is not None and is_timed else None,
        **(_lay_out(run_id, screen) if screen is not None else {}),
    )


@dataclass(frozen=True)
class RowsQuery:
    rows: Annotated[
        bool, Parameter(choices=("all",)), "`all`: include rows without a difference."
    ] = False


@operation("/runs/<run_id>/ranks")
def get_ranks(detail: RunDetail, query: RowsQuery) -> RanksReport:
    """Return where a run's ranks differ, and the first compile at which they diverge; empty if the
    run has no ranks.
    """
    return report_ranks(
        build_ranks(get_run_reader(detail.run.id), detail.run.id), every_row=query.rows
    )
