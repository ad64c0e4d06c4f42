"""Differences between ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from compileboard.app.api.answers import operation
from compileboard.app.db import get_run_reader
from compileboard.app.queries.parameters import Parameter
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.screens.run.ranks import RanksReport, build_ranks, report_ranks


@dataclass(frozen=True)
class RowsQuery:
    rows: Annotated[bool, Parameter(choices=("all",)), "`all`: also what does not differ."] = False


@operation("/runs/<run_id>/ranks")
def get_ranks(detail: RunDetail, query: RowsQuery) -> RanksReport:
    """Return where a run's ranks differ, and the first compile at which they diverge; empty without
    ranks.
    """
    return report_ranks(
        build_ranks(get_run_reader(detail.run.id), detail.run.id), every_row=query.rows
    )
