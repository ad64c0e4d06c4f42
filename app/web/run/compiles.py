"""The page of one compile with every recorded field."""

from __future__ import annotations

import json
from typing import Any

from flask import Blueprint, abort, current_app, render_template, url_for

from compileboard.app.analysis.artifacts.labels import GUARDS
from compileboard.app.analysis.labels import PhaseShare, list_shares
from compileboard.app.charts.compiles import chart_phases
from compileboard.app.db import get_run_reader
from compileboard.app.format import (
    format_bytes,
    format_count,
    format_duration,
    format_number,
    format_time,
)
from compileboard.app.queries.page import read_id
from compileboard.app.queries.run.compiles import Compilation
from compileboard.app.queries.run.run import get_run_features
from compileboard.app.screens.run.compiles import CompileScreen, build_compile
from compileboard.app.web.run.shell import find_run
from compileboard.collectors.contract.fields import FIELDS

blueprint = Blueprint("compile", __name__)

_UNITS = {
    "us": "µs",
    "ms": "ms",
    "s": "s",
    "time_us": "µs since 1970",
    "time_s": "s since 1970",
    "bytes": "bytes",
}
_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


def write_value(name: str, value: Any) -> str:
    unit = FIELDS[name].unit if name in FIELDS else "json"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and unit in _US:
        return format_duration(value * _US[unit])
    if number and unit in ("time_us", "time_s"):
        return f"{format_time(round(value * (1 if unit == 'time_us' else 1e6)))} UTC"
    if number and unit == "bytes":
        return format_bytes(value)
    if number:
        return format_count(value) if isinstance(value, int) else format_number(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(value) or "none"
    if isinstance(value, str):
        return value or "empty"
    return json.dumps(value, ensure_ascii=False, indent=1)


def list_fields(record: Compilation) -> list[dict[str, Any]]:
    fields = []
    for name, value in record.metrics.items():
        field = FIELDS.get(name)
        digest = value.get("config_hash") if isinstance(value, dict) else None
        digest = digest if isinstance(digest, str) else None
        shown = None if value is None or digest else write_value(name, value)
        fields.append(
            {
                "name": name,
                "value": shown,
                "raw": value
                if field and field.unit in _UNITS and not isinstance(value, dict | list | str)
                else None,
                "unit": _UNITS.get(field.unit, field.unit)
                if field
                else "not known to this version",
                "help": field.help if field else "A field that this version has no description of.",
                "config_hash": digest,
                "long": shown is not None and (len(shown) > 160 or shown.count("\n") > 2),
            }
        )
    return fields


def list_links(run_id: str, screen: CompileScreen) -> list[tuple[str, str]]:
    links, row = [], screen.compile
    if screen.stretch_us is not None:
        window: dict[str, Any] = dict(
            zip(("from", "to"), screen.stretch_us)
        )  # "from" is no name in Python
        links.append(("On the timeline", url_for("timeline.show", run_id=run_id, **window)))
    steps = [
        step for attempt in screen.entry.attempts for line in attempt.lines for step in line.steps
    ]
    guards = [step for step in steps if step.kind == "artifact" and step.name in GUARDS]
    if guards:
        links.append(
            (
                "Guards as a tree",
                url_for("guards.show_one", run_id=run_id, artifact_id=guards[-1].ref_id),
            )
        )
    if row.recompiled_from and screen.entry.artifact_count and row.outcome != "recompile_limit":
        changes = url_for("artifacts.changes", run_id=run_id, key=row.id)
        links.append((f"Changes from {row.recompiled_from}", changes))
    if row.function and get_run_features(get_run_reader(run_id), run_id).has_stacks:
        links.append(("Among all stacks", url_for("stacks.show", run_id=run_id, q=row.function)))
    return links


@blueprint.get("/runs/<run_id>/compiles/<key>")
def show(run_id: str, key: str) -> str:
    run = find_run(run_id).run
    screen = build_compile(get_run_reader(run.id), run, read_id(key))
    if screen is None:
        abort(404, f"Run {run.shown_name[:80]} has no compile number {key[:40]}.")
    records = screen.records
    return render_template(
        "compiles/one.html",
        run=run,
        screen=screen,
        it=screen.compile,
        records=[(record, list_fields(record), list_record_shares(record)) for record in records],
        places=list_links(run_id, screen),
        has_shapes="shapes.show" in current_app.view_functions,
        chart=chart_phases(records) if records else None,
        has_charts=True,
        live=run.state == "running",
    )


class _RecordedPhases:
    def __init__(self, record: Compilation) -> None:
        self.record = record

    def get(self, phase: str) -> int | None:
        return self.record.phases_us.get(phase)


def list_record_shares(record: Compilation) -> list[PhaseShare]:
    return list_shares(_RecordedPhases(record))
