"""The contents of this database and their verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from compileboard.app.analysis.tiles import HeadlineTile
from compileboard.app.analysis.verdict import PageVerdict
from compileboard.app.api.answers import operation
from compileboard.app.db import get_clock, get_engine, get_settings, get_store
from compileboard.app.queries.fleet.overview import (
    DatabaseTotals,
    RunPoint,
    RunSeries,
    TopBreak,
    TopCause,
    TopFunction,
)
from compileboard.app.screens.fleet.overview import (
    build_overview,
    build_recorded_runs,
    read_overview_filters,
)
from compileboard.app.screens.fleet.programs import ProgramSavings
from compileboard.app.screens.fleet.runs import RunJson


@dataclass(frozen=True)
class OverviewScope:
    suite: Annotated[str | None, "A run's suite, whole."] = None
    name: Annotated[str | None, "A run's name, whole."] = None


@dataclass(frozen=True)
class Overview:
    """The contents of this database and their verdict."""

    verdict: Annotated[PageVerdict, "The verdict of the overview."]
    tiles: Annotated[
        list[HeadlineTile],
        "The numbers of the suite that was measured last; one without value is absent.",
    ]
    programs: Annotated[
        list[ProgramSavings], "Where nothing was benchmarked: recorded programs with most to win."
    ]
    totals: Annotated[DatabaseTotals, "Sums over every run."]
    series: Annotated[list[RunSeries], "At most 500."]
    trend: Annotated[
        list[RunPoint], "The newest runs, oldest first: at most the setting trend_runs."
    ]
    newest_runs: Annotated[list[RunJson], "The newest 8."]
    graph_breaks: Annotated[list[TopBreak], "The 8 of the newest runs whose compiles took longest."]
    recompile_causes: Annotated[
        list[TopCause], "The 8 of the newest runs whose compiles took longest."
    ]
    functions: Annotated[list[TopFunction], "The 8 that recompile most in the newest runs."]


@operation("/overview")
def get_overview(scope: OverviewScope) -> Overview:
    """Return the contents of this database, and the verdict of the overview page."""
    engine, clock, point_count = get_engine(), get_clock(), get_settings().trend_runs
    asked = {name: value for name, value in vars(scope).items() if value}
    screen = build_overview(get_store(), read_overview_filters(asked), clock, point_count)
    recorded = build_recorded_runs(engine, scope.suite, scope.name, clock, point_count)
    return Overview(
        verdict=screen.verdict,
        tiles=list(screen.tiles),
        programs=list(screen.programs),
        totals=recorded.totals,
        series=list(recorded.series),
        trend=list(recorded.points),
        newest_runs=[listed.row for listed in recorded.newest],
        graph_breaks=list(recorded.graph_breaks),
        recompile_causes=list(recorded.recompile_causes),
        functions=list(recorded.functions),
    )
