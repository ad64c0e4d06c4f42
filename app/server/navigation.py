"""Entries of the top bar, the tabs below it, and the target of the search field."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from flask import Flask, current_app, g, request, url_for

from compileboard.app.core.access import may
from compileboard.app.core.address import parse_address
from compileboard.app.core.db import get_publication_error, get_reader, get_settings
from compileboard.app.core.format import format_plural
from compileboard.app.incidents.queries import count_incidents
from compileboard.collectors.store.connection import StoreError

# Label, and the pages below it: (label, endpoint).
ENTRIES: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("Overview", (("Overview", "overview.index"),)),
    ("Incidents", (("Incidents", "incidents.index"), ("Alerts", "alerts.index"))),
    (
        "Runs",
        (
            ("Runs", "runs.index"),
            ("Compare", "compare.index"),
            ("Import", "imports.index"),
            ("Machines", "boxes.index"),
            ("Activity", "activity.index"),
            ("Saved views", "views.index"),
        ),
    ),
    ("Benchmarks", (("Models", "models.index"), ("Trends", "trends.index"))),
    (
        "Breaks & recompiles",
        (
            ("Graph breaks", "graph_breaks.index"),
            ("Recompiles", "recompiles.index"),
            ("CUDA graphs", "rerecordings.index"),
            ("Failures", "failures.index"),
            ("Repros", "repros.index"),
        ),
    ),
)
MAX_UNAVAILABLE = 3  # runs with a lost file named on one page
# Only on the dashboard: a static site has none.
LOCAL_PAGES = frozenset(("imports.index", "boxes.index", "activity.index", "views.index"))


@dataclass(frozen=True)
class NavigationTab:
    label: str
    address: str
    is_current: bool


@dataclass(frozen=True)
class NavigationEntry:
    label: str
    tabs: tuple[NavigationTab, ...]
    is_current: bool
    count: int | None = None

    @property
    def address(self) -> str:
        return self.tabs[0].address

    @property
    def aria_current(self) -> str:
        return "page" if self.tabs[0].is_current else "true"

    @property
    def has_tabs(self) -> bool:
        return len(self.tabs) > 1 and any(tab.is_current for tab in self.tabs)


@dataclass(frozen=True)
class SearchBox:
    address: str
    suggest_address: str
    run_address: str | None  # searches the texts of the displayed run


def list_entries() -> list[NavigationEntry]:
    in_run = "run_id" in (request.view_args or {})
    here = "runs" if in_run else request.blueprint
    entries = []
    for label, pages in ENTRIES:
        tabs = tuple(
            NavigationTab(
                name, url_for(endpoint), not in_run and endpoint.partition(".")[0] == here
            )
            for name, endpoint in pages
            if endpoint in current_app.view_functions
            and not (_is_static_site() and endpoint in LOCAL_PAGES)
        )
        if tabs:
            is_current = here in {endpoint.partition(".")[0] for _name, endpoint in pages}
            count = count_open_incidents() if label == "Incidents" else None
            entries.append(NavigationEntry(label, tabs, is_current, count))
    return entries


def choose_search_box() -> SearchBox | None:
    if _is_static_site() or "search.index" not in current_app.view_functions:
        return None
    run_id = (request.view_args or {}).get("run_id")
    own = url_for("search.show_run", run_id=run_id) if run_id else None
    suggest = url_for("api.search_get_suggestions")
    return SearchBox(url_for("search.index"), suggest, own)


def count_open_incidents() -> int | None:
    if "store" not in g or not may("read"):
        return None
    try:
        return count_incidents(get_reader()).open_count
    except (sqlite3.Error, StoreError):
        return None


def describe_publication() -> str | None:
    if "store" not in g or not may("read") or _is_static_site():
        return None
    if parse_address(get_settings().db).clickhouse is None:
        return None
    try:
        error = get_publication_error(get_reader())
    except (sqlite3.Error, StoreError):
        return None
    return error and f"Pages across runs are behind: {error}"


def describe_unavailable() -> list[str]:
    store = g.get("store")
    if store is None or not may("read"):
        return []
    listed = list(store.unavailable.items())
    lines = [
        f"The detail of run {run_id} is left out: {error}"
        for run_id, error in listed[:MAX_UNAVAILABLE]
    ]
    more_count = len(listed) - len(lines)
    return (
        [*lines, f"So is that of {format_plural(more_count, 'other run')}."]
        if more_count
        else lines
    )


def _is_static_site() -> bool:
    return current_app.jinja_env.globals["site_copy"] is not None


def init_app(app: Flask) -> None:
    app.jinja_env.globals.update(
        navigation=list_entries,
        search_box=choose_search_box,
        describe_publication=describe_publication,
        describe_unavailable=describe_unavailable,
    )
