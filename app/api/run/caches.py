"""Schemas of a run's caches: what they answered, one look-up with its key."""

from __future__ import annotations

from typing import Any

from flask import request

from compileboard.app.analysis.caches.keys import ComponentChange
from compileboard.app.analysis.rows import plain_row
from compileboard.app.api.answers import Answer, Operation, find_run, read_cursor, read_limit, read_number, refuse
from compileboard.app.api.parameters import PAGE
from compileboard.app.api.run.compiles import CACHE_LOOKUP
from compileboard.app.api.run.run import CACHE_RESULT
from compileboard.app.api.schema import (
    COMPILE_ID,
    COMPILE_KEY,
    FILE,
    FUNCTION,
    ID,
    LINE,
    RANK,
    Schema,
    array_of,
    count,
    extend,
    maybe,
    record,
    text,
    time_us,
    whole,
)
from compileboard.app.db import get_reader
from compileboard.app.queries.page import FilterError
from compileboard.app.screens.run.caches import MOST_EXPLAINED, CacheLookupScreen, build_caches, build_lookup

_DIFFERS = maybe(text("What differs from the nearest earlier key, in a line; null where it was not compared."))
_VALUE = maybe(text("Its text; null where it is not there, or bytes."))
_CHANGE = record(
    "One component of the key that differs.",
    name=text("torch's name of it."),
    summary=text("How it differs."),
    explanation=text("What it is and what changes it; empty where nobody knows."),
    before=_VALUE,
    after=_VALUE,
    fields=array_of(
        record(
            "One field of it that differs.",
            name=text("Its name."),
            before=maybe(text("Value before.")),
            after=maybe(text("Value after.")),
        ),
        "Fields that differ, where torch writes it with fields.",
    ),
)
_CHANGES = maybe(array_of(_CHANGE, "What matters most first; null where nothing was compared."))
SCHEMAS: dict[str, Schema] = {
    "Caches": record(
        "What a run's caches answered.",
        results=array_of(CACHE_RESULT, "By cache, result and reason: at most 200."),
        lookups=array_of(
            extend(CACHE_LOOKUP, "One look-up in a cache.", differs=_DIFFERS),
            "One page of look-ups as they came; with `differs=yes` at most 20.",
        ),
        next=maybe(text("`cursor` of the next page of look-ups, null on the last.")),
    ),
    "CacheLookupDetail": extend(
        CACHE_LOOKUP,
        "One look-up in a cache with its key.",
        file=FILE,
        line=LINE,
        artifact_id=maybe(whole("`id` of the artifact that is torch's record of it.")),
        differs=_DIFFERS,
        traceback=maybe(text("Of a bypass: where torch decided it.")),
        key_remark=maybe(text("Why no components are here; null where they are.")),
        components=array_of(
            record(
                "One component of the key.",
                name=text("torch's name of it."),
                digest=text("torch's hash of it."),
                value=text("torch's text of it."),
            ),
            "What the key is made of, in torch's order.",
        ),
        looked_at_count=count("Earlier look-ups that a miss was compared with."),
        nearest=maybe(
            record(
                "The earlier look-up whose key differs least.",
                id=ID,
                run_id=text("Its run's id."),
                rank=RANK,
                compile_key=COMPILE_KEY,
                compile_id=COMPILE_ID,
                function=FUNCTION,
                result=text("hit or miss."),
                key=maybe(text("Its key.")),
                time_us=time_us("When."),
            )
        ),
        changed=_CHANGES,
        only_in_miss=_CHANGES,
        only_in_earlier=_CHANGES,
        same_count=maybe(count("Components that are the same.")),
    ),
}


_RUN = "/runs/<run_id>/caches"


def get_caches(run_id: str) -> Answer:
    """Return what the caches answered, and a page of look-ups."""
    find_run(run_id)
    wanted, limit = request.args.get("differs", ""), read_limit()
    if wanted not in ("", "yes"):
        raise FilterError(f"differs: {wanted[:40]!r} is not yes")
    explain_count = MOST_EXPLAINED if wanted else 0
    screen = build_caches(
        get_reader(), run_id, read_cursor(), min(limit, explain_count or limit), explain_count=explain_count
    )
    lookups = [plain_row(row) | {"differs": screen.differences.get(row.id)} for row in screen.page.rows]
    results = [plain_row(row) for row in screen.results]
    return Answer({"results": results, "lookups": lookups, "next": screen.page.next})


def get_one(run_id: str, lookup_id: str) -> Answer:
    """Return one look-up with its key."""
    find_run(run_id)
    runs, number = request.args.get("runs", ""), read_number(lookup_id)
    if runs not in ("", "before"):
        raise FilterError(f"runs: {runs[:40]!r} is not before")
    screen = None if number is None else build_lookup(get_reader(), run_id, number, across=runs == "before")
    if screen is None:
        refuse(f"Run {run_id[:80]} has no look-up in a cache with the number {lookup_id[:40]}.")
    return Answer(lookup_report_row(screen))


def lookup_report_row(report: CacheLookupScreen) -> dict[str, Any]:
    """Return one look-up with the components of its key and what differs from the nearest earlier one."""
    row = plain_row(report.lookup)
    for name in ("text", "sequence", "function_id", "run_id", "state"):
        row.pop(name)
    diff = report.diff
    near = None if report.nearest is None else plain_row(report.nearest)
    if near is not None:
        del near["payload_id"], near["function_id"]
    return row | {
        "differs": report.difference,
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
