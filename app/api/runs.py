"""Runs: the list, one of them, one of its compiles, one of its configuration texts."""

from __future__ import annotations

import time

from flask import request

from compileboard.app.analysis import config_diff, rows
from compileboard.app.analysis.diagnosis import diagnose
from compileboard.app.analysis.evidence import read_evidence
from compileboard.app.analysis.run_states import describe_state
from compileboard.app.api.answer import Answer, find_run, read_cursor, read_limit, read_number, refuse
from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries import compiles, events, logs, run_breaks, run_detail, run_events, run_recompiles, runs
from compileboard.app.queries.run_filter import read_run_filter
from compileboard.app.queries.runs import RunRow
from compileboard.app.queries.trace_files import list_trace_files


def shown_state(run: RunRow) -> str:
    """Return a run's state as pages show it: a silent recorder's run is "interrupted?"."""
    return describe_state(run, time.time_ns() // 1000, get_settings().stale_after_s).word


def list_runs() -> Answer:
    """List runs."""
    reader, wanted = get_reader(), read_run_filter(request.args)
    sort = request.args.get("sort") or "started"
    page = runs.list_runs(reader, wanted, sort=sort, cursor=read_cursor(), limit=read_limit(), pinned_first=False)
    tags = runs.list_tags(reader, [run.id for run in page.rows])
    found = [rows.run_row(run, tags[run.id]) | {"shown_state": shown_state(run)} for run in page.rows]
    return Answer(found, page.next)


def get_run(run_id: str) -> Answer:
    """Return one run."""
    detail, reader = find_run(run_id), get_reader()
    changed = run_detail.list_changed_configs(reader, run_id)
    return Answer(
        rows.run_detail_row(detail)
        | {
            "shown_state": shown_state(detail.run),
            "findings": [rows.plain_row(it) for it in diagnose(read_evidence(reader, detail.run))],
            "phases_us": rows.phases_row(compiles.get_phases(reader, run_id)),
            "outcomes": compiles.count_outcomes(reader, run_id),
            "distinct_break_count": run_breaks.count_distinct_breaks(reader, run_id),
            "cache_results": [rows.plain_row(it) for it in run_events.count_cache_results(reader, run_id)],
            "configs": [rows.plain_row(it) for it in run_detail.list_configs(reader, run_id)],
            "changed_settings": [rows.plain_row(it) for it in config_diff.list_changes(changed)],
            "trace_files": [rows.plain_row(it) for it in list_trace_files(reader, run_id)],
            "logs": [rows.plain_row(it) for it in logs.list_logs(reader, run_id)],
            "rejects": [
                {"kind": it.kind, "count": it.count, "first_line": it.first_line}
                for it in logs.sum_rejects(reader, run_id)
            ],
        }
    )


def get_compile(run_id: str, key: str) -> Answer:
    """Return one compile with all that belongs to it."""
    detail, reader, number = find_run(run_id), get_reader(), read_number(key)
    it = None if number is None else compiles.get_compile(reader, run_id, number)
    if it is None:
        refuse(f"Run {detail.run.shown_name[:80]} has no compile number {key[:40]}.")
    records = compiles.list_records(reader, it.id)
    chain = compiles.list_chain(reader, it.process_id, it.generation, it.frame_id)
    return Answer(
        rows.compile_row(it)
        | {
            "stack": events.list_stack(compiles.get_start(reader, it, records)),
            "chain": [{"id": other.id, "compile_id": other.compile_id, "outcome": other.outcome} for other in chain],
            "restart_reasons": [why for record in records for why in record.metrics.get("restart_reasons") or []],
            "compilations": [rows.compilation_row(record) for record in records],
            "recompiles": [rows.recompile_row(row) for row in run_recompiles.list_compile_recompiles(reader, [it.id])],
            "graph_breaks": [rows.graph_break_row(row) for row in run_breaks.list_compile_breaks(reader, it.id)],
            "failures": [rows.failure_row(row) for row in run_events.list_compile_failures(reader, it.id)],
            "cache_lookups": [rows.cache_lookup_row(row) for row in run_events.list_compile_lookups(reader, it.id)],
            "cudagraph_skips": [rows.cudagraph_skip_row(row) for row in run_events.list_compile_skips(reader, it.id)],
        }
    )


def get_config(run_id: str, config_hash: str) -> Answer:
    """Return one configuration text."""
    detail = find_run(run_id)
    text = run_detail.get_config(get_reader(), run_id, config_hash)
    if text is None:
        refuse(f"Run {detail.run.shown_name[:80]} has no configuration text {config_hash[:40]}.")
    return Answer(rows.plain_row(text) | {"values": text.values})
