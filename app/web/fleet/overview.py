"""The overview's headline: what the newest benchmark run comes to, its trend, its change against a baseline."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import Blueprint, render_template, request

from compileboard.app.analysis.comparison.model import ModelResult
from compileboard.app.analysis.incidents import messages
from compileboard.app.analysis.incidents.groups import group_incidents
from compileboard.app.analysis.metrics import SUMMARY_BY_NAME
from compileboard.app.analysis.models.labels import list_failures
from compileboard.app.analysis.models.series import label_fields
from compileboard.app.analysis.models.summaries import (
    SummaryDelta,
    compare,
    filter_set,
    find_newest,
    format_number,
    list_eligible_sets,
)
from compileboard.app.analysis.runs.states import describe_state
from compileboard.app.analysis.trends.lines import AXES, ENVIRONMENT, Axis, build_suite_line, lay_out
from compileboard.app.charts import overview as charts
from compileboard.app.charts.base import Chart
from compileboard.app.charts.trends import chart_metric, list_table_rows, share_runs
from compileboard.app.checks.sides import read_baseline_rows
from compileboard.app.checks.tables import CannotCompare
from compileboard.app.db import get_reader, get_settings
from compileboard.app.format import format_time
from compileboard.app.queries.fleet import overview as queries
from compileboard.app.queries.fleet.baselines import get_baseline, list_baselines
from compileboard.app.queries.fleet.incidents import IncidentFilter, count_findings, get_detection, list_findings
from compileboard.app.queries.fleet.runs import RunFilter, list_runs
from compileboard.app.queries.fleet.trends import (
    FILTERS,
    ModelSet,
    StoredSummary,
    TrendRun,
    address_set,
    choose_set,
    list_branches,
    list_sets,
    list_timed_runs,
    list_trend_runs,
    read_choice,
    read_last,
    read_text,
    read_trend_filter,
)
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.parameters import check_keys
from compileboard.app.queries.run.models import list_results
from compileboard.app.queries.run_cache import cached_ancestry, cached_for_run, cached_for_runs
from compileboard.app.screens.fleet.comparison import (
    count_run_verdicts,
    count_verdicts,
    filter_results,
    list_stored_results,
    load_results,
)
from compileboard.collectors.store.rollups.results import ResultRow
from compileboard.collectors.store.rollups.summaries import DEFINITIONS, Definition

SHOWN = (
    "pass_ratio",
    "geomean_speedup",
    "compilation_latency_s",
    "compression_ratio",
    "graph_breaks_per_model",
    "recompiles_per_model",
)
STORED = "baseline:"
_MOST_RUNS = 40  # that the list of baselines offers
_MOST_SETS = 60


@dataclass(frozen=True)
class Card:
    """Hold one headline number with its change and its chart; where there is none, `missing` says why."""

    value: str
    delta: SummaryDelta
    chart: Chart
    missing: str | None


@dataclass(frozen=True)
class Base:
    """What is compared with: its rows, a stored one's as Compare has them too, and what of the environment differs."""

    rows: Sequence[ResultRow]
    stored: Sequence[ModelResult]
    title: str
    run_id: str | None
    differences: Sequence[str]


def read_headline(reader: sqlite3.Connection, query: Mapping[str, str]) -> dict[str, Any]:
    """Read what the headline shows of what an address asks for; `sets` is empty where nothing was ever benchmarked.

    Raises: FilterError if a filter has a value that cannot be used.
    """
    wanted = read_trend_filter(query)
    definition = DEFINITIONS[read_choice(query, "definition", DEFINITIONS, "hud")]
    axis_name = read_choice(query, "axis", [name for name, _label in AXES], "date")
    last, limit = read_last(query)
    sets = list_sets(reader)
    chosen = choose_set(reader, sets, wanted)
    page: dict[str, Any] = {"sets": sets, "chosen": chosen, "cards": []}
    if not sets:
        return page
    page |= {"wanted": wanted, "definition": definition, "axis_name": axis_name, "last": last}
    page |= {"branches": list_branches(reader), "baseline": read_text(query, "baseline"), "label_fields": label_fields}
    page |= {"others": [it for it in sets if it != chosen][:_MOST_SETS], "definitions": DEFINITIONS.values()}
    summaries: list[StoredSummary] = []
    if chosen is not None:
        named = "definition" in query
        definition, summaries = list_eligible_sets(reader, wanted.narrow(chosen), definition, limit, named=named)
        page["definition"] = definition
    if chosen is None or not summaries:
        return page
    runs = {it.id: it for it in list_trend_runs(reader, [it.run_id for it in summaries])}
    parents = cached_ancestry(reader, [it.git_commit for it in runs.values()]) if axis_name == "commit" else {}
    axis = lay_out(list(runs.values()), axis_name, parents=parents)
    timed = list_timed_runs(reader, wanted.narrow(chosen))
    newest = find_newest([it for it in summaries if runs[it.run_id].state != "running"], timed) or summaries[0]
    still = [runs[it.run_id] for it in summaries[: summaries.index(newest)] if runs[it.run_id].state == "running"]
    summaries = summaries[summaries.index(newest) :]
    previous = next((it.run_id for it in summaries[1:] if it.run_id in timed), None)
    base = _find_base(reader, page["baseline"], previous, chosen, runs[newest.run_id])
    return page | _show(reader, definition, axis, summaries, base) | {
        "newest": newest,
        "run": runs[newest.run_id],
        "still": still,
        "baselines": _offer(reader, [runs[it.run_id] for it in summaries[1:_MOST_RUNS]]),
    }  # fmt: skip


def _show(
    reader: sqlite3.Connection, definition: Definition, axis: Axis, summaries: Sequence[StoredSummary], base: Base
) -> dict[str, Any]:
    newest = summaries[0]
    rows = filter_set(cached_for_run(reader, newest.run_id, list_results), newest.set)
    deltas = {it.metric.name: it for it in compare(base.rows, rows, definition, _count_verdicts(reader, base, newest))}
    lines = {name: build_suite_line(SUMMARY_BY_NAME[name], summaries) for name in SHOWN}
    cards = [
        Card(
            format_number(SUMMARY_BY_NAME[name], getattr(newest, name), definition),
            deltas[name],
            chart_metric(SUMMARY_BY_NAME[name], [line], axis, chart_id=f"headline-{name}", small=True),
            None if line.has_points else _format_missing(name, definition),
        )
        for name, line in lines.items()
    ]
    columns, twin = list_table_rows([(SUMMARY_BY_NAME[name], [line]) for name, line in lines.items()], axis)
    failures = list_failures(base.rows, rows) if base.title else []
    shown = {"columns": columns, "twin": twin, "trend": axis, "base": base}
    return shown | {"cards": cards, "failures": [it for it in failures if it.word != "still"]}


def _count_verdicts(
    reader: sqlite3.Connection, base: Base, newest: StoredSummary
) -> Mapping[str, Mapping[str, int]] | None:
    """Count the models of both sides by Compare's verdicts."""
    fields = newest.set.fields
    if base.run_id:
        return cached_for_runs(reader, (base.run_id, newest.run_id), count_run_verdicts, tuple(fields.items()))
    results = filter_results(load_results(reader, newest.run_id), fields) if base.stored else []
    return count_verdicts(filter_results(base.stored, fields, any_hardware=True), results)


def _format_missing(name: str, definition: Definition) -> str:
    if name == "pass_ratio" and not definition.has_pass_rate:
        return f"{definition.label} knows no pass rate; another definition has one where accuracy was checked."
    return "No run here has measured it."


def _find_base(
    reader: sqlite3.Connection, named: str | None, previous: str | None, chosen: ModelSet, run: TrendRun
) -> Base:
    """Find what is compared with: what is named, else the previous run.

    Raises: FilterError if there is no such run or stored baseline.
    """
    if named and named.startswith(STORED):
        return _load_stored(reader, named.removeprefix(STORED), chosen, run)
    run_id = named or previous
    if run_id is None:
        return Base((), (), "", None, ())
    found = list_trend_runs(reader, [run_id])
    if not found:
        raise FilterError(f"baseline: there is no run {run_id[:80]}; it may have been deleted")
    rows = filter_set(cached_for_run(reader, run_id, list_results), chosen, any_hardware=bool(named))
    title = f"{found[0].name}, {format_time(found[0].started_us)[:16]}"
    return Base(rows, (), title if named else f"the previous run ({title})", run_id, _differ(found[0], run))


def _load_stored(reader: sqlite3.Connection, name: str, chosen: ModelSet, run: TrendRun) -> Base:
    stored = get_baseline(reader, name)
    if stored is None:
        raise FilterError(f"baseline: there is no stored baseline {name[:80]!r}; `compileboard baseline list` has them")
    title = f"the stored baseline {name}"
    try:
        rows = read_baseline_rows(stored.body, title)
    except CannotCompare as error:
        raise FilterError(f"baseline: {error}") from None
    kept = stored.body.get("environment", {})
    pairs = (("torch", kept.get("torch"), run.torch_version), ("GPU", kept.get("hardware"), chosen.hardware))
    differences = [f"{word} {before} → {now}" for word, before, now in pairs if before and now and before != now]
    return Base(filter_set(rows, chosen, any_hardware=True), list_stored_results(stored), title, None, differences)


def _differ(base: TrendRun, new: TrendRun) -> list[str]:
    pairs = [(word, getattr(base, name), getattr(new, name)) for word, name in ENVIRONMENT]
    return [f"{word} {before} → {now}" for word, before, now in pairs if before and now and before != now]


def _offer(reader: sqlite3.Connection, runs: Sequence[TrendRun]) -> list[tuple[str, str]]:
    """List what can be compared with: stored baselines, then the newest runs."""
    stored = [(STORED + it.name, f"stored: {it.name}") for it in list_baselines(reader).rows]
    said = [(it.id, " · ".join((it.name, format_time(it.started_us)[:16], (it.git_commit or "")[:8]))) for it in runs]
    return stored + said


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
        return render_template("overview/empty.html")
    points = queries.list_trend(reader, suite, name, newest=settings.trend_runs)
    newest = list_runs(reader, RunFilter(suite=suite, name=name), pinned_first=False, limit=8).rows
    now_us = time.time_ns() // 1000
    return render_template(
        "overview/index.html",
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
    wanted = IncidentFilter(state="confirmed", handling="open", recovered=False)
    groups = group_incidents(list_findings(reader, wanted, limit=_NEWEST_FINDINGS).rows, ())
    return {
        "found": [lead for group in groups for lead in group.leads][:_SHOWN_FINDINGS],
        "found_counts": count_findings(reader),
        "detection": get_detection(reader),
        "words": messages,
        "cells": messages,
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
