"""Jinja filters and globals: labels, links that keep filters, and a list's active filters."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from flask import Flask, current_app, g, has_request_context, request, url_for
from jinja2 import StrictUndefined
from markupsafe import Markup

from compileboard.app.artifacts.artifact_labels import describe_name
from compileboard.app.benchmarks.exports import choose_model
from compileboard.app.benchmarks.labels import (
    describe_accuracy,
    describe_backend,
    describe_missing,
    describe_page_faults,
    describe_speedup,
    describe_status,
    describe_verdict,
    list_minimal_programs,
)
from compileboard.app.compiles.model import list_present_phases
from compileboard.app.core import format, labels
from compileboard.app.core.access import is_local
from compileboard.app.core.db import get_board_path, get_reader, get_settings
from compileboard.app.core.fields import gb_url
from compileboard.app.core.forge import RunSource, get_source
from compileboard.app.core.resources import __version__
from compileboard.app.guards.model import describe_kind
from compileboard.app.push.queries import is_pushed
from compileboard.app.ranks.model import describe_caches
from compileboard.app.ranks.rank_differences import ASPECTS
from compileboard.app.repros.model import describe_message, describe_repro_kind, describe_result
from compileboard.app.shapes.model import describe_guard, describe_range
from compileboard.app.stacks.model import list_shares
from compileboard.app.timeline.model import LEGEND, find_phase
from compileboard.collectors.contract.categories import label_category
from compileboard.collectors.contract.library_names import is_harness_step, is_library_name
from compileboard.collectors.contract.rejects import KINDS
from compileboard.collectors.fixes.statement import mark_part
from compileboard.collectors.fixes.titles import name_stack_values

TEMPLATE_NAMES = {
    "words": labels,
    "aspects": ASPECTS,
    "choose_model": choose_model,
    "is_harness_step": is_harness_step,
    "describe_accuracy": describe_accuracy,
    "describe_caches": describe_caches,
    "describe_guard": describe_guard,
    "describe_kind": describe_kind,
    "describe_missing": describe_missing,
    "describe_name": describe_name,
    "describe_page_faults": describe_page_faults,
    "describe_range": describe_range,
    "describe_message": describe_message,
    "describe_repro_kind": describe_repro_kind,
    "describe_result": describe_result,
    "describe_speedup": describe_speedup,
    "describe_status": describe_status,
    "describe_verdict": describe_verdict,
    "find_phase": find_phase,
    "gb_url": gb_url,
    "is_library_name": is_library_name,
    "label_category": label_category,
    "list_minimal_programs": list_minimal_programs,
    "list_present_phases": list_present_phases,
    "list_outcome_shares": list_shares,
    "phase_legend": LEGEND,
    "reject_kinds": KINDS,
}
_MISSING = Markup('<span class="missing">{}</span>').format(format.NOT_RECORDED)


def _mark_missing(write: Callable[..., str]) -> Callable[[Any], str]:
    return lambda value: _MISSING if value is None else write(value)


TEMPLATE_FILTERS: dict[str, Callable[..., Any]] = {
    "duration": _mark_missing(format.format_duration),
    "filesize": _mark_missing(format.format_bytes),
    "count": _mark_missing(format.format_count),
    "number": _mark_missing(format.format_number),
    "ratio": _mark_missing(format.format_ratio),
    "percent": _mark_missing(format.format_percent),
    "time": _mark_missing(format.format_time),
    "recorded": lambda value: _MISSING if value is None or value == "" else value,
    "iso_time": format.format_iso_time,
    "plural": format.format_plural,
    "backend": describe_backend,
    "stack_values": name_stack_values,
    "part": mark_part,
}


# The parameters that filter a list; orders, cursors and columns do not.
FILTER_LABELS = {
    "q": "Search",
    "accuracy": "Accuracy",
    "action": "Action",
    "actor": "Person",
    "artifact": "Artifact",
    "backend": "Backend",
    "branch": "Branch",
    "break": "Graph break",
    "category": "Guard",
    "commit": "Commit",
    "definition": "Formula",
    "device": "Device",
    "direction": "Direction",
    "dtype": "Dtype",
    "dynamic": "Dynamic shapes",
    "error": "Exception",
    "function": "Function",
    "gb": "GB ID",
    "gpu": "GPU",
    "handling": "Status",
    "hardware": "GPU",
    "host": "Host",
    "kind": "Kind",
    "last": "Runs",
    "library": "Library frames",
    "metric": "Metric",
    "mode": "Mode",
    "model": "Model",
    "name": "Name",
    "operation": "Operation",
    "outcome": "Outcome",
    "rank": "Rank",
    "recompiled": "Recompiles",
    "recovered": "Recovered",
    "run": "Run",
    "since": "Since",
    "state": "State",
    "status": "Status",
    "subject": "Of",
    "suite": "Suite",
    "tag": "Tag",
    "torch": "torch",
    "until": "Until",
    "world_size": "Ranks",
}


@dataclass(frozen=True)
class FilterChip:
    label: str
    value: str
    address: str


def list_chips(names: Mapping[str, Iterable[Any]] | None = None) -> list[FilterChip]:
    shown = {
        key: {option[0]: option[1] for option in options if not isinstance(option, str)}
        for key, options in (names or {}).items()
    }
    chips = []
    for key, values in request.args.lists():
        for value in values if key in FILTER_LABELS else ():
            if value:
                address = url_with(**{key: [other for other in values if other != value]})
                chips.append(
                    FilterChip(FILTER_LABELS[key], _name_filter(key, value, shown), address)
                )
    return chips


def _name_filter(key: str, value: str, shown: Mapping[str, Mapping[Any, Any]]) -> str:
    return (
        describe_backend(value) if key == "backend" else str(shown.get(key, {}).get(value, value))
    )


def url_without_filters() -> str:
    return url_with(**dict.fromkeys(FILTER_LABELS, ""))


def url_with(**changes: object) -> str:
    """Return the current address with changed query parameters; None or "" removes one.

    The cursor is removed too, because a changed list starts at its first page; pass `cursor=` to
    keep it.
    """
    query: dict[str, Any] = {
        k: v for k, v in request.args.to_dict(flat=False).items() if k != "cursor"
    }
    query.update(changes)
    remaining = {key: value for key, value in query.items() if value not in (None, "", [], [""])}
    here = url_for(request.endpoint or "overview.index", **(request.view_args or {}))
    # Not url_for: a key may be one of its arguments ("_scheme") or part of the path ("run_id").
    return f"{here}?{urlencode(remaining, doseq=True)}" if remaining else here


def run_url(run_id: str) -> str:
    return f"{url_for('runs.index')}/{quote(run_id, safe='')}"


def board_option(run_id: str | None = None) -> str:
    """Return the command line option for this database: `--server URL` for a run pushed from
    another machine, which does not have the file, else `--db FILE`.
    """
    settings = get_settings()
    has_address = has_request_context() and current_app.jinja_env.globals["site_copy"] is None
    if has_address and (
        not is_local(settings) or (run_id is not None and is_pushed(get_reader(), run_id))
    ):
        return f"--server {shlex.quote(request.url_root.rstrip('/'))}"
    return f"--db {shlex.quote(get_board_path())}"


def run_source(run_id: str | None = None) -> RunSource:
    """Return the location of a run's source, by default of the run in the address."""
    run_id = run_id or (request.view_args or {}).get("run_id")
    sources: dict[str, RunSource] = g.setdefault("sources", {})
    if run_id and run_id not in sources:
        sources[run_id] = get_source(get_reader(), run_id, get_settings().forges)
    return sources[run_id] if run_id else RunSource()


def is_local_path(text: str) -> bool:
    return (
        text.startswith("/")
        and not text.startswith("//")
        and "\\" not in text
        and text.isprintable()
    )


def init_app(app: Flask) -> None:
    app.jinja_env.filters.update(TEMPLATE_FILTERS)
    # An undefined name fails a test instead of leaving a gap in a page.
    app.jinja_env.undefined = StrictUndefined
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.globals.update(
        TEMPLATE_NAMES, has_charts=False, live=False
    )  # unless the page sets it
    app.jinja_env.globals["site_copy"] = None  # set by app.site for exported pages
    app.jinja_env.globals.update(
        url_with=url_with,
        url_without_filters=url_without_filters,
        list_chips=list_chips,
        run_url=run_url,
        board_option=board_option,
        run_source=run_source,
        version=__version__,
        settings=get_settings,
    )
