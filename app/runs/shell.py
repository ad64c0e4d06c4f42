"""Shared parts of a run's pages: lookup, header and tabs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import abort, current_app, render_template, url_for

from compileboard.app.activity.queries import describe_absence
from compileboard.app.core.db import get_reader, get_run_reader, get_settings
from compileboard.app.reports import BUNDLE
from compileboard.app.reports.parquet import is_available
from compileboard.app.runs import run_queries as run_detail
from compileboard.app.runs.model import RunHeader, build_header
from compileboard.app.runs.run_queries import RunDetail
from compileboard.collectors.store.dashboard import get_trial_of

REPORTS: tuple[tuple[str, str], ...] = (
    ("html", "HTML report"),
    ("md", "Markdown"),
    ("csv", "CSV"),
    ("json", "JSON"),
)
if is_available():
    REPORTS += (("parquet", "Parquet"),)
MAX_TABS = 7  # More tabs go into the menu.


@dataclass(frozen=True)
class RunTab:
    key: str
    label: str
    address: str
    count: int | None = None
    is_recorded: bool = True


@dataclass(frozen=True)
class RunTabs:
    row: Sequence[RunTab]
    menu: Sequence[RunTab]
    views: Sequence[RunTab]
    current: str

    @property
    def title(self) -> str:
        entries = (*self.row, *self.menu, *self.views)
        return next((entry.label for entry in entries if entry.key == self.current), "Search")

    @property
    def current_in_menu(self) -> RunTab | None:
        return next((entry for entry in self.menu if entry.key == self.current), None)


# Views of a tab, in order: key, label.
VIEWS = {
    "compiles": (("compiles", "List"), ("stacks", "Stacks"), ("failures", "Failures")),
    "environment": (("environment", "Program and machine"), ("processes", "Processes")),
}
# Key, label, and the page over all runs.
EXPLORERS = (
    ("directory", "Artifacts", "directory.show"),
    ("guards", "Guards", "guards.show"),
    ("shapes", "Symbolic shapes", "shapes.show"),
    ("aot", "AOT graphs", "aot.show"),
    ("cudagraphs", "CUDA graphs", "cuda_graphs.show"),
)


def find_run(run_id: str) -> RunDetail:
    detail = run_detail.get_run(get_reader(), run_id)
    if detail is None:
        abort(404, describe_absence(get_reader(), run_id))
    return detail


def list_reports(run_id: str, has_texts: bool) -> list[tuple[str, str]]:
    if "reports.download" not in current_app.view_functions:
        return []
    report = f"{url_for('run.show', run_id=run_id)}/report"
    reports = [(label, f"{report}.{format}") for format, label in REPORTS]
    if has_texts:
        reports.insert(1, ("HTML report with graphs and code", f"{report}.html?payloads=yes"))
    reports.append(("Bundle to serve or import elsewhere", f"{report}.{BUNDLE}"))
    return reports


def list_tabs(header: RunHeader, current: str) -> RunTabs:
    run, features = header.run, header.features

    def at(
        key: str, label: str, count: int | None = None, endpoint: str = "", is_recorded: bool = True
    ) -> RunTab:
        address = (
            url_for(endpoint, run_id=run.id)
            if endpoint
            else url_for("run.show", run_id=run.id, tab=key or None)
        )
        return RunTab(key, label, address, count, is_recorded)

    row = [
        at("", "Summary"),
        at("compiles", "Compiles", run.compile_count),
        at("breaks", "Graph breaks", run.graph_break_count),
        at("recompiles", "Recompiles", run.recompile_count),
        at("timeline", "Timeline", endpoint="timeline.show"),
        at("environment", "Environment"),
    ]
    if run.result_count:  # results are why a benchmark was run
        row.insert(1, at("results", "Results", endpoint="models.show_run"))
    if features.has_repros:
        row.insert(-2, at("repros", "Repros", endpoint="repros.show_run"))
    if features.has_steps:
        row.insert(-2, at("steps", "Steps", endpoint="steps.show"))
    if features.has_ranks:
        row.insert(-1, at("ranks", "Ranks", endpoint="ranks.show"))
    has_caches = bool(run.lookup_count)
    recorded = {
        "directory": features.has_artifacts,
        "guards": features.has_guards,
        "shapes": features.has_symbols,
        "aot": features.has_aot,
        "cudagraphs": features.has_cuda_graphs,
    }
    menu = [at("caches", "Caches", is_recorded=has_caches)] + [
        at(key, label, endpoint=endpoint, is_recorded=recorded[key])
        for key, label, endpoint in EXPLORERS
    ]
    if not current_app.jinja_env.globals["site_copy"]:
        menu.append(at("search", "Search in this run", endpoint="search.show_run"))
    if not features.has_steps:
        menu.append(at("steps", "Steps", endpoint="steps.show", is_recorded=False))
    if not features.has_repros:
        menu.append(at("repros", "Repros", endpoint="repros.show_run", is_recorded=False))
    counts = {"failures": run.failure_count, "processes": run.process_count}
    endpoints = {"stacks": "stacks.show"}
    parent = next((key for key, views in VIEWS.items() if current in dict(views)), "")
    views = [
        at(key, label, counts.get(key), endpoints.get(key, ""))
        for key, label in VIEWS.get(parent, ())
    ]
    return RunTabs(row[:MAX_TABS], [*row[MAX_TABS:], *menu], views, current)


def render_run(detail: RunDetail, template: str, *, tab: str, **context: Any) -> str:
    """Render one page of a run; the template extends run/_shell.html and fills its block `tab`."""
    run = detail.run
    header = build_header(
        get_run_reader(run.id), detail, time.time_ns() // 1000, get_settings().stale_after_s
    )
    return render_template(
        template,
        detail=detail,
        run=run,
        header=header,
        tab=tab,
        tabs=list_tabs(header, tab),
        reports=list_reports(run.id, header.features.has_texts),
        compare_url=url_for("compare.index", new=run.id)
        if "compare.index" in current_app.view_functions
        else None,
        live=header.is_live,
        trial=get_trial_of(get_reader(), run.id) if run.source == "trial" else None,
        **context,
    )
