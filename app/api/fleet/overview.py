"""What is in this database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from compileboard.app.api.answers import operation
from compileboard.app.db import get_clock, get_engine, get_settings
from compileboard.app.queries.fleet.overview import DatabaseTotals, RunPoint, RunSeries, TopBreak, TopFunction
from compileboard.app.screens.fleet.overview import build_observed_runs
from compileboard.app.screens.fleet.runs import RunJson


@dataclass(frozen=True)
class OverviewScope:
    """Which runs the overview sums."""

    suite: Annotated[str | None, "A run's suite, whole."] = None
    name: Annotated[str | None, "A run's name, whole."] = None


@dataclass(frozen=True)
class Overview:
    """What is in this database."""

    totals: Annotated[DatabaseTotals, "Sums over every run."]
    series: Annotated[list[RunSeries], "At most 500."]
    trend: Annotated[list[RunPoint], "The newest runs, oldest first: as many as the setting trend_runs says."]
    newest_runs: Annotated[list[RunJson], "The newest 8."]
    graph_breaks: Annotated[list[TopBreak], "The 8 most frequent in the newest runs."]
    functions: Annotated[list[TopFunction], "The 8 that recompile most in the newest runs."]


@operation("/overview")
def get_overview(scope: OverviewScope) -> Overview:
    """Return what is in this database, as the overview page shows it."""
    observed = build_observed_runs(get_engine(), scope.suite, scope.name, get_clock(), get_settings().trend_runs)
    return Overview(
        totals=observed.totals,
        series=list(observed.series),
        trend=list(observed.points),
        newest_runs=[listed.row for listed in observed.newest],
        graph_breaks=list(observed.graph_breaks),
        functions=list(observed.functions),
    )
