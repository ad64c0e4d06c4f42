"""The HTML report: one file that opens from disk, offline, and reads without JavaScript."""

from __future__ import annotations

import dataclasses
from typing import Any

from app.analysis import words
from app.analysis.chains import label_category
from app.analysis.phases import list_shares, sum_phases
from app.charts.base import Chart
from app.charts.run import chart_compiles
from app.reports import contents as limits
from app.reports.contents import Contents
from app.reports.page import STYLES, list_scripts, make_environment, make_policy, read_static
from app.resources import __version__

CHARTED = 24


def is_charted(contents: Contents) -> bool:
    """Say whether there is something to draw."""
    return any(sum_phases(it.phases) for it in contents.compiles[:CHARTED])


def policy_of(contents: Contents) -> str:
    """Return the Content-Security-Policy that this run's report needs."""
    return make_policy(is_charted(contents))


def render_html(contents: Contents) -> str:
    """Write the report as one HTML file."""
    charted = is_charted(contents)
    highest = max((sum_phases(it.phases) or 0 for it in contents.compiles), default=0)
    template = make_environment().get_template("reports/run.html")
    return template.render(
        it=contents,
        run=contents.run,
        detail=contents.detail,
        state_kind=limits.STATE_KINDS.get(contents.run.state, "quiet"),
        styles=read_static(STYLES),
        scripts=list_scripts(charted),
        policy=make_policy(charted),
        chart=_chart(contents) if charted else None,
        shares=list_shares(contents.phases),
        phases_us=sum_phases(contents.phases),
        compiles=[(row, list_shares(row.phases, highest)) for row in contents.compiles],
        environment=sorted({pair for it in contents.processes for pair in it.environment.items()}),
        ranked=contents.run.process_count > 1,
        first_steps=limits.MOST_STEPS // 4,
        words=words,
        label_category=label_category,
        version=__version__,
        live=False,
    )


def _chart(contents: Contents) -> Chart:
    run = contents.run
    chart = chart_compiles(contents.compiles[:CHARTED], run.id, run.compile_count)
    # A point's address leads to the dashboard, which is not there beside a file.
    traces: list[dict[str, Any]] = [
        {key: value for key, value in trace.items() if key != "customdata"} for trace in chart.figure["data"]
    ]
    count = min(CHARTED, len(contents.compiles))
    note = "by phase" if count >= run.compile_count else f"the {count} longest of {run.compile_count}, by phase"
    return dataclasses.replace(chart, figure=chart.figure | {"data": traces}, note=note)
