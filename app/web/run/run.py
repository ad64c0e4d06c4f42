"""The Run page: one run, a tab an address, and the configuration texts that its processes had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, abort, render_template, request

from compileboard.app.analysis import labels
from compileboard.app.analysis.comparison import environment
from compileboard.app.analysis.compiles import build_steps, label_category, shorten_steps
from compileboard.app.analysis.labels import list_shares, sum_phases
from compileboard.app.analysis.runs.diagnosis import FIRST_FINDINGS, rank_fixes, read_evidence
from compileboard.app.charts.compiles import chart_compiles
from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries.fleet.incidents import (
    DIRECTIONS,
    NOT_IGNORED,
    NOT_WITHDRAWN,
    IncidentFilter,
    count_ranges,
)
from compileboard.app.queries.page import FilterError, check_limit
from compileboard.app.queries.run import compiles, failures, graph_breaks, recompiles, trace_files
from compileboard.app.queries.run import run as run_detail
from compileboard.app.queries.run.failures import count_unfinished
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.queries.run.trace_files import list_trace_files
from compileboard.app.web.run.shell import find_run, render_run
from compileboard.collectors.contract.rejects import KINDS

blueprint = Blueprint("run", __name__)

CHARTED = 24


def _summary(detail: RunDetail) -> dict[str, Any]:
    reader, run = get_reader(), detail.run
    phases = compiles.get_phases(reader, run.id)
    longest = compiles.list_compiles(reader, run.id, sort="time", limit=CHARTED).rows
    began = count_ranges(reader, IncidentFilter(state=NOT_WITHDRAWN, handling=NOT_IGNORED), [run.id])
    return {
        "began": [(it, sum(row.finding_count for row in began if row.direction == it)) for it in DIRECTIONS],
        "findings": rank_fixes(read_evidence(reader, run)),
        "first_findings": FIRST_FINDINGS,
        "unfinished_count": count_unfinished(reader, run),
        "phases": phases,
        "shares": list_shares(phases),
        "phases_us": sum_phases(phases),
        "chart": chart_compiles(longest, run.id, run.compile_count) if sum_phases(phases) is not None else None,
        "changes": environment.list_changes(run_detail.list_changed_configs(reader, run.id)),
    }


def _compiles(detail: RunDetail) -> dict[str, Any]:
    reader, run = get_reader(), detail.run
    sort = request.args.get("sort") or "started.asc"
    recompiled = {"": None, "yes": True, "no": False}.get(request.args.get("recompiled", ""), "bad")
    if isinstance(recompiled, str):
        raise FilterError("recompiled: expected yes or no")
    wanted = compiles.CompileFilter(
        outcome=request.args.get("outcome") or None, text=request.args.get("q", "").strip()[:200], recompiled=recompiled
    )
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    page = compiles.list_compiles(reader, run.id, wanted, sort=sort, cursor=request.args.get("cursor"), limit=limit)
    longest = compiles.list_compiles(reader, run.id, wanted, sort="time", limit=CHARTED).rows
    count = compiles.count_compiles(reader, run.id, wanted)
    highest = max((sum_phases(it.phases) or 0 for it in (*longest, *page.rows)), default=0)
    return {
        "listing": page,
        "rows": [(it, list_shares(it.phases, highest)) for it in page.rows],
        "count": count,
        "sort": sort,
        "filtered": bool(wanted.outcome or wanted.text or recompiled is not None),
        "given": {key: request.args.get(key, "") for key in ("q", "outcome", "recompiled", "columns")},
        "outcomes": [(key, labels.describe_outcome(key).word) for key in compiles.count_outcomes(reader, run.id)],
        "chart": chart_compiles(longest, run.id, count) if highest else None,
        "ranked": run.process_count > 1 or any(it.rank is not None for it in page.rows),
    }


def _breaks(detail: RunDetail) -> dict[str, Any]:
    reader, run = get_reader(), detail.run
    limit, cursor = check_limit(request.args.get("limit"), 20), request.args.get("cursor")
    one = request.args.get("distinct", "")
    if one and not (one.isascii() and one.isdigit()):
        raise FilterError(f"distinct: {one[:40]!r} is not the number of a distinct graph break")
    each = bool(one) or request.args.get("view") == "each"
    found: dict[str, Any] = {
        "each": each,
        "distinct": one,
        "distinct_count": graph_breaks.count_distinct_breaks(reader, run.id),
    }
    if each:
        distinct_id = min(int(one), 2**62) if one else None
        found["listing"] = graph_breaks.list_graph_breaks(reader, run.id, cursor, limit, distinct_id=distinct_id)
    else:
        found["listing"] = graph_breaks.list_distinct_breaks(reader, run.id, cursor, limit)
    return found


def _recompiles(detail: RunDetail) -> dict[str, Any]:
    reader, run = get_reader(), detail.run
    page = recompiles.list_chains(reader, run.id, request.args.get("cursor"), 8)
    chains = []
    for chain in page.rows:
        members = compiles.list_chain(reader, chain.process_id, chain.generation, chain.frame_id)
        kept, left_out = shorten_steps(build_steps(members, ()))
        reasons = recompiles.list_compile_recompiles(reader, [step.compile.id for step in kept])
        chains.append((chain, build_steps([step.compile for step in kept], reasons), left_out))
    return {
        "listing": page,
        "chains": chains,
        "causes": recompiles.list_causes(reader, run.id),
        "limits": recompiles.list_limit_hits(reader, run.id),
    }


def _failures(detail: RunDetail) -> dict[str, Any]:
    page = failures.list_failures(get_reader(), detail.run.id, request.args.get("cursor"), 20)
    return {"listing": page}


def _caches(detail: RunDetail) -> dict[str, Any]:
    reader, run = get_reader(), detail.run
    skips = failures.list_cudagraph_skips(reader, run.id, limit=200)
    return {
        "results": failures.count_cache_results(reader, run.id),
        "listing": failures.list_cache_lookups(reader, run.id, request.args.get("cursor"), get_settings().page_size),
        "skips": skips,
    }


def _environment(detail: RunDetail) -> dict[str, Any]:
    reader, run = get_reader(), detail.run
    changed = run_detail.list_changed_configs(reader, run.id)
    uses = run_detail.list_configs(reader, run.id)
    by_kind: dict[str, list[run_detail.ConfigUse]] = {}
    for use in uses:
        if use.kind != "changed":
            by_kind.setdefault(use.kind, []).append(use)
    differences = []
    for kind, members in by_kind.items():
        texts = [run_detail.get_config(reader, run.id, use.config_hash) for use in members[:8]]
        if len(texts) > 1:
            pairs = [(text.config_hash, text.values) for text in texts if text]
            differences.append((kind, environment.compare_texts(pairs)))
    processes = run_detail.list_processes(reader, run.id, limit=64)
    return {
        "changed_recorded": bool(changed),
        "changes": environment.list_changes(changed),
        "uses": [use for members in by_kind.values() for use in members],
        "differences": differences,
        "processes": processes,
        "environment": sorted({pair for it in processes for pair in it.environment.items()}),
    }


def _processes(detail: RunDetail) -> dict[str, Any]:
    reader, run = get_reader(), detail.run
    return {
        "processes": run_detail.list_processes(reader, run.id, limit=64),
        "notes": trace_files.list_notes(reader, run.id),
        "traces": list_trace_files(reader, run.id),
        "logs": trace_files.list_logs(reader, run.id),
        "rejects": trace_files.sum_rejects(reader, run.id),
        "reject_words": KINDS,
        "capabilities": labels.CAPABILITIES,
    }


FILLS: dict[str, Callable[[RunDetail], dict[str, Any]]] = {
    "": _summary,
    "compiles": _compiles,
    "breaks": _breaks,
    "recompiles": _recompiles,
    "failures": _failures,
    "caches": _caches,
    "environment": _environment,
    "processes": _processes,
}

# What a file of results says nothing of, by tab; it may have graph breaks.
_UNSEEN = {
    "compiles": "compiles",
    "breaks": "graph breaks",
    "recompiles": "recompiles",
    "failures": "exceptions",
    "caches": "caches",
}


@blueprint.get("/runs/<run_id>")
def show(run_id: str) -> str:
    """Show one tab of a run."""
    detail, tab = find_run(run_id), request.args.get("tab", "")
    fill = FILLS.get(tab)
    if fill is None:
        known = ", ".join(key for key in FILLS if key)
        raise FilterError(f"tab: {tab[:40]!r} is not one of {known}")
    run = detail.run
    is_unseen = run.has_only_results and tab in _UNSEEN and not (tab == "breaks" and run.graph_break_count)
    return render_run(
        detail,
        "run/index.html",
        tab=tab,
        tab_file="run/_not_recorded.html" if is_unseen else f"run/_{tab or 'summary'}.html",
        tab_subject=_UNSEEN.get(tab),
        words=labels,
        label_category=label_category,
        has_charts=tab in ("", "compiles"),
        **fill(detail),
    )


@blueprint.get("/runs/<run_id>/configs/<config_hash>")
def show_config(run_id: str, config_hash: str) -> str:
    """Show one configuration text as a table of settings."""
    detail = find_run(run_id)
    text = run_detail.get_config(get_reader(), run_id, config_hash)
    if text is None:
        abort(404, f"Run {detail.run.shown_name[:80]} has no configuration text {config_hash[:40]}.")
    changes = environment.list_changes(run_detail.list_changed_configs(get_reader(), run_id))
    wanted = request.args.get("q", "").strip().lower()
    values = [(name, environment.show_value(value)) for name, value in text.values.items()]
    return render_template(
        "run/config.html",
        run=detail.run,
        text=text,
        rows=[pair for pair in values if wanted in pair[0].lower()],
        total=len(values),
        wanted=wanted,
        changed={change.name: change.default for change in changes if change.module == text.kind},
    )
