"""What the compile caches of a run answered, and why a look-up missed."""

from __future__ import annotations

from typing import Any

from flask import request

from compileboard.app.analysis.cache_keys import ComponentChange
from compileboard.app.analysis.cache_report import LookupReport, read_lookup, summarize_diff
from compileboard.app.analysis.rows import cache_lookup_row, plain_row
from compileboard.app.api.answer import Answer, find_run, read_cursor, read_limit, read_number, refuse
from compileboard.app.api.operation import Operation
from compileboard.app.api.parameters import PAGE
from compileboard.app.db import get_reader
from compileboard.app.queries import run_events
from compileboard.app.queries.cache_keys import get_lookup
from compileboard.app.queries.page import FilterError

_RUN = "/runs/<run_id>/caches"
MOST_COMPARED = 20  # misses of one answer; each is compared with hundreds of keys


def get_caches(run_id: str) -> Answer:
    """Return what the caches answered, and a page of look-ups."""
    find_run(run_id)
    wanted, limit = request.args.get("differs", ""), read_limit()
    if wanted not in ("", "yes"):
        raise FilterError(f"differs: {wanted[:40]!r} is not yes")
    if wanted:
        limit = min(limit, MOST_COMPARED)
    reader = get_reader()
    page = run_events.list_cache_lookups(reader, run_id, read_cursor(), limit)
    results = [plain_row(it) for it in run_events.count_cache_results(reader, run_id)]
    lookups = [
        cache_lookup_row(it) | {"differs": _summarize(run_id, it.id) if wanted and it.result == "miss" else None}
        for it in page.rows
    ]
    return Answer({"results": results, "lookups": lookups, "next": page.next})


def _summarize(run_id: str, lookup_id: int) -> str | None:
    lookup = get_lookup(get_reader(), run_id, lookup_id)
    diff = read_lookup(get_reader(), lookup).diff if lookup is not None else None
    return None if diff is None else summarize_diff(diff)


def get_one(run_id: str, lookup_id: str) -> Answer:
    """Return one look-up with its key."""
    find_run(run_id)
    runs, number = request.args.get("runs", ""), read_number(lookup_id)
    if runs not in ("", "before"):
        raise FilterError(f"runs: {runs[:40]!r} is not before")
    lookup = None if number is None else get_lookup(get_reader(), run_id, number)
    if lookup is None:
        refuse(f"Run {run_id[:80]} has no look-up in a cache with the number {lookup_id[:40]}.")
    return Answer(lookup_report_row(read_lookup(get_reader(), lookup, across=runs == "before")))


def lookup_report_row(report: LookupReport) -> dict[str, Any]:
    """Return one look-up with the components of its key and what differs from the nearest earlier one."""
    row = plain_row(report.lookup)
    for name in ("text", "sequence", "function_id", "run_id", "state"):
        row.pop(name)
    diff = report.diff
    near = None if report.nearest is None else plain_row(report.nearest)
    if near is not None:
        del near["payload_id"], near["function_id"]
    return row | {
        "differs": None if diff is None else summarize_diff(diff),
        "traceback": report.traceback,
        "key_remark": report.key_remark,
        "components": [{"name": it.name, "digest": it.digest, "value": it.value} for it in report.components],
        "looked_at_count": report.looked_at_count,
        "nearest": near,
        "changed": None if diff is None else [_change_row(it) for it in diff.changed],
        "only_in_miss": None if diff is None else [_change_row(it) for it in diff.only_in_miss],
        "only_in_earlier": None if diff is None else [_change_row(it) for it in diff.only_in_earlier],
        "same_count": None if diff is None else diff.same_count,
    }


def _change_row(it: ComponentChange) -> dict[str, Any]:
    return plain_row(it) | {"fields": [plain_row(field) for field in it.fields]}


OPERATIONS = (
    Operation(
        _RUN,
        get_caches,
        "Caches",
        False,
        "What a run's caches answered by result and reason, and its look-ups as they came.",
        ("differs", *PAGE),
    ),
    Operation(
        f"{_RUN}/<lookup_id>",
        get_one,
        "CacheLookupDetail",
        False,
        "One look-up: what its key is made of, and for a miss what differs from the nearest earlier key.",
        ("runs",),
    ),
)
