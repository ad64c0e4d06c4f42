"""The Compile page: one compile with every field that torch recorded of it."""

from __future__ import annotations

import json
from typing import Any

from flask import Blueprint, abort, current_app, render_template, url_for

from compileboard.app.analysis import labels
from compileboard.app.analysis.artifacts.labels import GUARDS, describe_name
from compileboard.app.analysis.compiles import CompileEntry, build_entries, label_category
from compileboard.app.analysis.labels import list_shares, sum_phases
from compileboard.app.analysis.timeline import find_phase
from compileboard.app.charts.compiles import chart_phases
from compileboard.app.db import get_reader
from compileboard.app.format import format_bytes, format_count, format_duration, format_number, format_time
from compileboard.app.queries.run import compiles, failures, graph_breaks, recompiles, trace_files
from compileboard.app.queries.run.failures import list_unfinished
from compileboard.app.queries.run.run import get_run_features
from compileboard.app.web.run.shell import find_run
from compileboard.collectors.contract.fields import FIELDS

blueprint = Blueprint("compile", __name__)

_UNITS = {"us": "µs", "ms": "ms", "s": "s", "time_us": "µs since 1970", "time_s": "s since 1970", "bytes": "bytes"}
_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


def write_value(name: str, value: Any) -> str:
    """Write a recorded metric as people read it, by its field's unit."""
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


def list_fields(record: compiles.Compilation) -> list[dict[str, Any]]:
    """List a record's fields in torch's order; `config_hash` is set where the value is a configuration text."""
    found = []
    for name, value in record.metrics.items():
        field = FIELDS.get(name)
        digest = value.get("config_hash") if isinstance(value, dict) else None
        shown = None if value is None or digest else write_value(name, value)
        found.append(
            {
                "name": name,
                "value": shown,
                "raw": value if field and field.unit in _UNITS and not isinstance(value, dict | list | str) else None,
                "unit": _UNITS.get(field.unit, field.unit) if field else "not known to this version",
                "help": field.help if field else "A field that this version has no description of.",
                "config_hash": digest,
                "long": shown is not None and (len(shown) > 160 or shown.count("\n") > 2),
            }
        )
    return found


def list_places(run_id: str, it: compiles.CompileRow, entry: CompileEntry) -> list[tuple[str, str]]:
    """List where else a run shows this compile, as (word, address); only what was recorded of it."""
    found = []
    stretch = trace_files.get_stretch(get_reader(), it.id)
    if stretch is not None and stretch[0] < stretch[1]:
        window: dict[str, Any] = {"from": stretch[0], "to": stretch[1]}  # "from" is no name in Python
        found.append(("On the timeline", url_for("timeline.show", run_id=run_id, **window)))
    steps = [step for attempt in entry.attempts for line in attempt.lines for step in line.steps]
    guards = [step for step in steps if step.kind == "artifact" and step.name in GUARDS]
    if guards:
        found.append(("Guards as a tree", url_for("guards.show_one", run_id=run_id, artifact_id=guards[-1].ref_id)))
    if it.recompiled_from and entry.artifact_count and it.outcome != "recompile_limit":
        changes = url_for("artifacts.changes", run_id=run_id, key=it.id)
        found.append((f"What changed against {it.recompiled_from}", changes))
    if it.function and get_run_features(get_reader(), run_id).has_stacks:
        found.append(("Among all stacks", url_for("stacks.show", run_id=run_id, q=it.function)))
    return found


@blueprint.get("/runs/<run_id>/compiles/<key>")
def show(run_id: str, key: str) -> str:
    """Show one compile of a run."""
    reader, detail = get_reader(), find_run(run_id)
    good = key.isascii() and key.isdigit() and len(key) < 19
    it = compiles.get_compile(reader, run_id, int(key)) if good else None
    if it is None:
        abort(404, f"Run {detail.run.shown_name[:80]} has no compile number {key[:40]}.")
    records = compiles.list_records(reader, it.id)
    start = compiles.get_start(reader, it, records)
    chain = compiles.list_chain(reader, it.process_id, it.generation, it.frame_id)
    older = next((other for other in chain if other.compile_id == it.recompiled_from), None)
    entry = build_entries([it], trace_files.list_steps(reader, [it.id]), detail.run.state == "running")[0]
    return render_template(
        "compiles/one.html",
        run=detail.run,
        it=it,
        outcome=labels.describe_outcome(it.outcome, detail.run.state == "running"),
        unfinished=next(iter(list_unfinished(reader, detail.run, it.id)), None),
        find_phase=find_phase,
        records=[(record, list_fields(record), list_shares_of(record)) for record in records],
        chain=chain,
        older=older,
        before=compiles.get_beside(reader, it, run_id, False),
        after=compiles.get_beside(reader, it, run_id, True),
        entry=entry,
        places=list_places(run_id, it, entry),
        has_shapes="shapes.show" in current_app.view_functions,
        describe_name=describe_name,
        older_keys={other.compile_id: other.id for other in chain},
        recompiles=recompiles.list_compile_recompiles(reader, [it.id]),
        breaks=graph_breaks.list_compile_breaks(reader, it.id),
        failures=failures.list_compile_failures(reader, it.id),
        lookups=failures.list_compile_lookups(reader, it.id),
        skips=failures.list_compile_skips(reader, it.id),
        restarts=[reason for record in records for reason in record.metrics.get("restart_reasons") or []],
        stack=trace_files.list_stack(start),
        phases_us=sum_phases(it.phases),
        shares=list_shares(it.phases),
        chart=chart_phases(records) if records else None,
        words=labels,
        label_category=label_category,
        has_charts=True,
        live=detail.run.state == "running",
    )


class _Recorded:
    """Give a record's phases the shape that shares are made from."""

    def __init__(self, record: compiles.Compilation) -> None:
        self.record = record

    def get(self, phase: str) -> int | None:
        return self.record.phases_us.get(phase)


def list_shares_of(record: compiles.Compilation) -> list[Any]:
    """Split one record's duration into its phases."""
    return list_shares(_Recorded(record))
