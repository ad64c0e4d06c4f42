"""The Overview page, and its API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from flask import Blueprint, render_template, request, url_for

from compileboard.app.benchmarks.series import label_fields
from compileboard.app.benchmarks.trend_queries import (
    FILTERS,
    UNSAID,
    ModelSet,
    model_set_parameters,
)
from compileboard.app.comparison.verdict import PageVerdict
from compileboard.app.core.api import operation
from compileboard.app.core.charts import draw_sparkline
from compileboard.app.core.db import get_clock, get_engine, get_settings, get_store
from compileboard.app.core.filters import url_with
from compileboard.app.core.parameters import check_keys
from compileboard.app.incidents import model as messages
from compileboard.app.incidents.pages import link_comparison
from compileboard.app.runs.model import Run, list_described_runs
from compileboard.app.runs.overview import (
    NEWEST_RUNS_COUNT,
    TOP_COUNT,
    HeadlineTile,
    OverviewScreen,
    ProgramSavings,
    build_demo_progress,
    build_overview,
    read_overview_filters,
)
from compileboard.app.runs.overview_queries import (
    DatabaseTotals,
    RunPoint,
    RunSeries,
    TopBreak,
    TopCause,
    TopFunction,
    list_top,
    list_trend,
)

blueprint = Blueprint("overview", __name__)
_PARAMETERS = (*FILTERS, "name", "last")
MIN_POINTS = 3  # fewer are not a trend
MAX_OPTIONS = 100
_COUNTS = (
    ("30", "Last 30 runs"),
    ("90", "Last 90 runs"),
    ("365", "Last 365 runs"),
    ("all", "All runs"),
)
_MORE = (
    ("mode", "Mode"),
    ("dtype", "Dtype"),
    ("device", "Device"),
    ("dynamic", "Dynamic shapes"),
    ("world_size", "Ranks"),
)


@dataclass(frozen=True)
class ScopeChip:
    label: str
    value: str
    options: list[tuple[str, str, bool]]


@blueprint.get("/")
def index() -> str:
    check_keys(request.args, _PARAMETERS)
    filters = read_overview_filters(request.args)
    screen = build_overview(get_store(), filters, get_clock(), get_settings().trend_runs)
    if not screen.series:
        return render_template("overview/empty.html")
    demo = build_demo_progress(get_engine(), [recent.run for recent in screen.runs], get_clock())
    return render_template(
        "overview/index.html",
        screen=screen,
        verdict=screen.verdict,
        chips=_list_chips(screen),
        more=_list_more(screen),
        tiles=[
            (
                tile,
                draw_sparkline(tile.values, hollow=tile.incomplete, bad_from=tile.changed_from)
                if sum(value is not None for value in tile.values) >= MIN_POINTS
                else None,
            )
            for tile in screen.tiles
        ],
        scope=model_set_parameters(screen.selected) if screen.selected else {},
        label_fields=label_fields,
        sparklines={
            incident_id: draw_sparkline(
                line.values, bad_from=line.bad_from, bad_to=line.bad_to, width=150, height=52
            )
            for incident_id, line in screen.incidents.sparklines.items()
            if line and sum(value is not None for value in line.values) >= MIN_POINTS
        },
        link_comparison=link_comparison,
        words=messages,
        demo=demo,
        live=screen.is_live or demo is not None,
    )


def _list_chips(screen: OverviewScreen) -> list[ScopeChip]:
    filters, selected = screen.filters, screen.selected
    if selected is None:
        suites = sorted({series.suite for series in screen.series if series.suite})
        names = sorted(
            {series.name for series in screen.series if filters.suite in (None, series.suite)}
        )
        return [
            *([_make_chip("suite", "", filters.suite, suites, "All suites")] if suites else []),
            _make_chip("name", "", filters.name, names, "All runs"),
        ]
    suites = list(dict.fromkeys(model_set.suite for model_set in screen.sets))
    suites += sorted({own.suite for own in screen.series if own.suite} - {*suites})
    options = [
        (suite, url_for("overview.index", suite=suite), suite == selected.suite) for suite in suites
    ]
    return [
        ScopeChip("", selected.suite, options[:MAX_OPTIONS]),
        _make_chip("branch", "Branch", filters.sets.branch, screen.branches, "all"),
        _make_set_chip("hardware", "GPU", screen, selected),
        _make_set_chip("backend", "Backend", screen, selected),
        ScopeChip(
            "",
            dict(_COUNTS).get(filters.last, f"Last {filters.last} runs"),
            [(text, url_with(last=key), key == filters.last) for key, text in _COUNTS],
        ),
    ]


def _list_more(screen: OverviewScreen) -> list[ScopeChip]:
    selected = screen.selected
    if selected is None:
        return []
    chips = [_make_set_chip(name, label, screen, selected) for name, label in _MORE]
    names = sorted({series.name for series in screen.series if series.suite == selected.suite})
    chips.append(_make_chip("name", "Run name", screen.filters.name, names, "all"))
    return [chip for chip in chips if len(chip.options) > (2 if chip.label == "Run name" else 1)]


def _make_chip(
    name: str, label: str, value: str | None, values: Iterable[str], any_text: str
) -> ScopeChip:
    options = [(any_text, url_with(**{name: None}), not value)]
    options += [(text, url_with(**{name: text}), text == value) for text in values]
    return ScopeChip(label, value or any_text, options[:MAX_OPTIONS])


def _make_set_chip(name: str, label: str, screen: OverviewScreen, selected: ModelSet) -> ScopeChip:
    own = [model_set for model_set in screen.sets if model_set.suite == selected.suite]
    newest: dict[Any, ModelSet] = {}
    for model_set in own:
        newest.setdefault(getattr(model_set, name), model_set)
    current = getattr(selected, name)
    linked = {key: request.args[key] for key in ("branch", "last", "name") if request.args.get(key)}
    addresses: dict[Any, dict[str, Any]] = {
        value: {**model_set_parameters(model_set), **linked} for value, model_set in newest.items()
    }
    options = [
        (_format_value(value), url_for("overview.index", **address), value == current)
        for value, address in addresses.items()
    ]
    return ScopeChip(label, _format_value(current), options[:MAX_OPTIONS])


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return UNSAID if value in (None, "") else str(value)


@dataclass(frozen=True)
class OverviewScope:
    suite: Annotated[str | None, "A run's suite, whole; else the suite of its results."] = None
    name: Annotated[str | None, "A run's exact name."] = None


@dataclass(frozen=True)
class Overview:
    """Totals of this database, and their verdict."""

    verdict: Annotated[PageVerdict, "The verdict of the overview."]
    tiles: Annotated[
        Sequence[HeadlineTile],
        "The numbers of the suite that was measured last; those without a value are left out.",
    ]
    programs: Annotated[
        Sequence[ProgramSavings],
        "The newest programs and benchmarks with a fix, most to win first.",
    ]
    totals: Annotated[DatabaseTotals, "Sums over every run, or those of `suite` and `name`."]
    series: Annotated[Sequence[RunSeries], "Each suite and name with its runs, at most 500."]
    trend: Annotated[
        Sequence[RunPoint], "The newest runs, oldest first: at most the setting trend_runs."
    ]
    newest_runs: Annotated[Sequence[Run], "The newest 8 runs."]
    graph_breaks: Annotated[
        Sequence[TopBreak], "The 8 whose compiles took longest in the newest runs."
    ]
    recompile_causes: Annotated[
        Sequence[TopCause], "The 8 whose compiles took longest in the newest runs."
    ]
    functions: Annotated[Sequence[TopFunction], "The 8 that recompile most in the newest runs."]


@operation("/overview")
def get_overview(scope: OverviewScope) -> Overview:
    """Return the totals of this database, and the verdict of the overview page."""
    engine, clock, point_count = get_engine(), get_clock(), get_settings().trend_runs
    filters = read_overview_filters({key: value for key, value in vars(scope).items() if value})
    screen = build_overview(get_store(), filters, clock, point_count)
    newest = list_described_runs(
        engine, clock, filters.runs, pinned_first=False, limit=NEWEST_RUNS_COUNT
    )
    return Overview(
        verdict=screen.verdict,
        tiles=screen.tiles,
        programs=screen.programs,
        totals=screen.totals,
        series=screen.series,
        trend=list_trend(
            engine,
            filters.suite,
            filters.name,
            run_count=point_count,
            alive_since_us=clock.alive_since_us,
        ),
        newest_runs=newest.rows,
        graph_breaks=screen.graph_breaks,
        recompile_causes=screen.recompile_causes,
        functions=list_top(
            engine, TopFunction, filters.suite, filters.name, run_count=point_count, limit=TOP_COUNT
        ),
    )
