"""What all pages of a run share: its head, its tabs, and where it is looked up."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from flask import abort, current_app, render_template, url_for

from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries.dashboard.activity import describe_absence
from compileboard.app.queries.run import run as run_detail
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.reports.parquet import is_available
from compileboard.app.screens.run.run import RunHeader, build_header

REPORTS: tuple[tuple[str, str], ...] = (("html", "HTML"), ("json", "JSON"), ("csv", "CSV"), ("md", "Markdown"))
if is_available():
    REPORTS += (("parquet", "Parquet"),)

Tab = tuple[str, str, "int | None", str]  # label, address, count, key


@dataclass(frozen=True)
class TabGroup:
    """Tabs that belong together."""

    label: str
    tabs: list[Tab]


# Key, label and, of the run, the count beside it.
PRIMARY_TABS = (
    ("", "Summary", None),
    ("compiles", "Compiles", "compile_count"),
    ("breaks", "Graph breaks", "graph_break_count"),
    ("recompiles", "Recompiles", "recompile_count"),
    ("failures", "Failures", None),
    ("caches", "Caches", None),
    ("environment", "Environment", None),
    ("processes", "Processes", "process_count"),
)
# Key, label, endpoint and what must be recorded (of Explored) for the page to have something to show.
MORE_TABS = (
    ("timeline", "Timeline", "timeline.show", "has_spans"),
    ("stacks", "Stacks", "stacks.show", "has_stacks"),
    ("directory", "Directory", "directory.show", "has_artifacts"),
    ("guards", "Guards", "guards.show", "has_guards"),
    ("shapes", "Symbolic shapes", "shapes.show", "has_symbols"),
    ("aot", "AOT", "aot.show", "has_aot"),
    ("ranks", "Ranks", "ranks.show", "has_ranks"),
    ("search", "Search", "search.show_run", "has_search"),
)


def find_run(run_id: str) -> RunDetail:
    """Return a run, or answer that there is none."""
    detail = run_detail.get_run(get_reader(), run_id)
    if detail is None:
        abort(404, describe_absence(get_reader(), run_id))
    return detail


def list_reports(run_id: str, has_texts: bool) -> list[tuple[str, str]]:
    """List label and address of each way to save a run's report; none while nothing can make them."""
    if "reports.download" not in current_app.view_functions:
        return []
    report = f"{url_for('run.show', run_id=run_id)}/report"
    reports = [(label, f"{report}.{format}") for format, label in REPORTS]
    if has_texts:
        reports.insert(1, ("HTML with graphs and code", f"{report}.html?payloads=yes"))
    return reports


def list_tabs(header: RunHeader) -> list[TabGroup]:
    """List the tabs of a run: what happened, and what there is to explore."""
    run = header.run
    counts = {"failures": header.failure_count}
    happened: list[Tab] = [
        (
            label,
            url_for("run.show", run_id=run.id, tab=key or None),
            run.count(count) if count else counts.get(key),
            key,
        )
        for key, label, count in PRIMARY_TABS
    ]
    if run.result_count:  # a benchmark's results are what it was started for
        happened.insert(1, ("Results", url_for("models.show_run", run_id=run.id), None, "results"))
    explore: list[Tab] = [
        (label, url_for(endpoint, run_id=run.id), None, key)
        for key, label, endpoint, needed in MORE_TABS
        if endpoint in current_app.view_functions and getattr(header.features, needed)
    ]
    groups = [TabGroup("What happened", happened), TabGroup("Explore", explore)]
    return [group for group in groups if group.tabs]


def render_run(detail: RunDetail, template: str, *, tab: str, **context: Any) -> str:
    """Render one page of a run; the template extends run/_shell.html and fills its block `tab`."""
    run = detail.run
    header = build_header(get_reader(), detail, time.time_ns() // 1000, get_settings().stale_after_s)
    return render_template(
        template,
        detail=detail,
        run=run,
        header=header,
        tab=tab,
        tabs=list_tabs(header),
        reports=list_reports(run.id, header.features.has_texts),
        compare_url=url_for("compare.index", new=run.id) if "compare.index" in current_app.view_functions else None,
        live=header.is_live,
        **context,
    )
