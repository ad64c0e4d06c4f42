"""The overview: what is in this database."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from flask import Blueprint, render_template, request

from compileboard.app.analysis import finding_cells, finding_words
from compileboard.app.analysis.finding_groups import group_findings
from compileboard.app.analysis.run_states import describe_state
from compileboard.app.charts import overview as charts
from compileboard.app.charts.metric_trends import share_runs
from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries import overview as queries
from compileboard.app.queries.findings import FindingFilter, count_findings, get_detection, list_findings
from compileboard.app.queries.runs import RunFilter, list_runs
from compileboard.app.queries.trend_filter import FILTERS, address_set, check_keys
from compileboard.app.queries.trends import ModelSet
from compileboard.app.web.headline import read_headline

blueprint = Blueprint("overview", __name__)
_PARAMETERS = (*FILTERS, "name", "definition", "axis", "last", "baseline")
_SHOWN_FINDINGS, _NEWEST_FINDINGS = 5, 60  # rows, and how many findings they are put together from


@blueprint.get("/")
def index() -> str:
    """Show what is in this database, of one suite and name if asked."""
    check_keys(request.args, _PARAMETERS)
    reader, settings = get_reader(), get_settings()
    suite, name = (request.args.get(key) or None for key in ("suite", "name"))
    series = queries.list_series(reader)
    if not series:
        return render_template("overview_empty.html")
    points = queries.list_trend(reader, suite, name, newest=settings.trend_runs)
    newest = list_runs(reader, RunFilter(suite=suite, name=name), pinned_first=False, limit=8).rows
    now_us = time.time_ns() // 1000
    return render_template(
        "overview.html",
        headline=_read_headline(reader),
        **_read_findings(reader),
        suite=suite,
        name=name,
        suites=sorted({it.suite for it in series if it.suite}),
        names=sorted({it.name for it in series if suite in (None, it.suite)}),
        totals=queries.get_totals(reader, suite, name),
        charts=[
            charts.chart_runs(points),
            charts.chart_recompiles(points),
            charts.chart_compile_time(points),
            charts.chart_graph_breaks(points),
        ],
        shared=charts.share_points(points),
        points_id=charts.POINTS_ID,
        point_count=len(points),
        trend_columns=charts.TREND_COLUMNS,
        trend_rows=charts.list_trend_rows(points),
        newest=[(run, describe_state(run, now_us, settings.stale_after_s)) for run in newest],
        breaks=queries.list_top_breaks(reader, suite, name, newest=settings.trend_runs),
        functions=queries.list_top_functions(reader, suite, name, newest=settings.trend_runs),
        live=any(point.state == "running" for point in points),
    )


def _read_findings(reader: sqlite3.Connection) -> dict[str, Any]:
    """Read the newest findings that nobody answered, of everything in this database."""
    wanted = FindingFilter(state="confirmed", handling="open", recovered=False)
    groups = group_findings(list_findings(reader, wanted, limit=_NEWEST_FINDINGS).rows, ())
    return {
        "found": [lead for group in groups for lead in group.leads][:_SHOWN_FINDINGS],
        "found_counts": count_findings(reader),
        "detection": get_detection(reader),
        "words": finding_words,
        "cells": finding_cells,
    }


def _read_headline(reader: sqlite3.Connection) -> dict[str, Any]:
    """Read what the page shows of benchmark results, with what its links need."""
    headline = read_headline(reader, request.args)
    kept = {key: request.args[key] for key in ("definition", "axis", "last", "branch") if request.args.get(key)}
    if "trend" in headline:
        headline["shared"] = share_runs(headline["trend"])

    def address(it: ModelSet) -> dict[str, str]:
        return address_set(it) | kept

    chosen = headline["chosen"]
    return headline | {"address": address, "query": address(chosen) if chosen else {}}
