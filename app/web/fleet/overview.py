"""The overview page: its address, its charts, its template."""

from __future__ import annotations

from flask import Blueprint, render_template, request

from compileboard.app.analysis.incidents import messages
from compileboard.app.analysis.models.series import label_fields
from compileboard.app.charts import overview as charts
from compileboard.app.charts.trends import chart_metric, list_table_rows, share_runs
from compileboard.app.db import get_clock, get_engine, get_reader, get_settings
from compileboard.app.queries.fleet.trends import FILTERS, ModelSet, address_set
from compileboard.app.queries.parameters import check_keys
from compileboard.app.screens.fleet.demo import build_demo_progress
from compileboard.app.screens.fleet.overview import Headline, build_overview, read_overview_filters
from compileboard.collectors.store.rollups.summaries import DEFINITIONS

blueprint = Blueprint("overview", __name__)
_PARAMETERS = (*FILTERS, "name", "definition", "axis", "last", "baseline")
_LINKED = ("definition", "axis", "last", "branch")  # what a link to another configuration keeps


@blueprint.get("/")
def index() -> str:
    """Show what is in this database, of one suite and name if asked."""
    check_keys(request.args, _PARAMETERS)
    filters = read_overview_filters(request.args)
    screen = build_overview(get_reader(), get_engine(), filters, get_clock(), get_settings().trend_runs)
    if not screen.observed.series:
        return render_template("overview/empty.html")
    points = screen.observed.points
    demo = build_demo_progress(get_engine(), [listed.run for listed in screen.observed.newest], get_clock())
    linked = {key: request.args[key] for key in _LINKED if request.args.get(key)}

    def address(configuration: ModelSet) -> dict[str, str]:
        return address_set(configuration) | linked

    return render_template(
        "overview/index.html",
        screen=screen,
        headline=screen.headline,
        drawn=_build_headline(screen.headline) if screen.headline else None,
        address=address,
        label_fields=label_fields,
        definitions=[(definition.name, definition.label) for definition in DEFINITIONS.values()],
        suites=sorted({series.suite for series in screen.observed.series if series.suite}),
        names=sorted({series.name for series in screen.observed.series if filters.suite in (None, series.suite)}),
        charts=[
            charts.chart_runs(points),
            charts.chart_recompiles(points),
            charts.chart_compile_time(points),
            charts.chart_graph_breaks(points),
        ],
        shared=charts.share_points(points),
        points_id=charts.POINTS_ID,
        trend_columns=charts.TREND_COLUMNS,
        trend_rows=charts.list_trend_rows(points),
        words=messages,
        demo=demo,
        live=screen.observed.is_live or demo is not None,
    )


def _build_headline(headline: Headline) -> dict[str, object]:
    """Build the headline's numbers, a small chart each, with one table for all."""
    axis = headline.axis
    metric_lines = [(number.delta.metric, [number.line]) for number in headline.numbers]
    columns, rows = list_table_rows(metric_lines, axis)
    figures = [
        chart_metric(metric, lines, axis, chart_id=f"headline-{metric.name}", small=True)
        for metric, lines in metric_lines
    ]
    return {
        "cards": list(zip(headline.numbers, figures)),
        "columns": columns,
        "rows": rows,
        "shared": share_runs(axis),
    }
