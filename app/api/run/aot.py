"""AOTAutograd's graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from compileboard.app.analysis.aot.report import AotGraphRow, RunReport
from compileboard.app.api.answers import PageQuery, operation
from compileboard.app.db import get_run_reader
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.screens.run.aot import build_aot


@dataclass(frozen=True)
class AotReport(RunReport):
    """A run's graphs."""

    graphs: Annotated[Sequence[AotGraphRow], "One page of graphs, as they were compiled."]
    next: Annotated[str | None, "`cursor` of the next page of graphs, null on the last."]


@operation("/runs/<run_id>/aot")
def get_aot(detail: RunDetail, page: PageQuery) -> AotReport:
    """Return what AOTAutograd found out about a run's graphs, and what its wrappers do at each
    call.
    """
    screen = build_aot(get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit)
    return AotReport(**vars(screen.report), graphs=screen.graphs, next=screen.next)
