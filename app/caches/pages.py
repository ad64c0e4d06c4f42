"""The page of one cache lookup, and the API of a run's lookups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated

from flask import Blueprint, abort, request

from compileboard.app.caches.model import (
    MAX_EXPLAINED,
    CacheLookupScreen,
    ComponentChange,
    KeyDiff,
    build_caches,
    build_lookup,
)
from compileboard.app.caches.run_queries import NearestLookup
from compileboard.app.core.api import PageQuery, operation, refuse
from compileboard.app.core.db import get_run_reader, get_store
from compileboard.app.core.fields import Count, FileName, LineNumber
from compileboard.app.core.page import FilterError, read_id
from compileboard.app.core.parameters import Parameter
from compileboard.app.runs.failures import CacheLookup, CacheResult
from compileboard.app.runs.run_queries import RunDetail
from compileboard.app.runs.shell import find_run, render_run
from compileboard.collectors.store.results import fill

blueprint = Blueprint("caches", __name__)

SHOWN = 100  # components of one kind on a page
CHANGES = 200


@blueprint.get("/runs/<run_id>/caches/<lookup_id>")
def show_one(run_id: str, lookup_id: str) -> str:
    detail, runs = find_run(run_id), request.args.get("runs", "")
    if runs not in ("", "before"):
        raise FilterError(f"runs: {runs[:40]!r} is not before")
    across = runs == "before"
    store = get_store() if across else None
    screen = build_lookup(get_run_reader(run_id), run_id, read_id(lookup_id), store)
    if screen is None:
        abort(
            404,
            f"{detail.run.shown_name[:80]} has no cache lookup with the number {lookup_id[:40]}.",
        )
    return render_run(
        detail,
        "caches/lookup.html",
        tab="caches",
        screen=screen,
        across=across,
        most_changes=CHANGES,
        most=SHOWN,
    )


Differs = Annotated[
    str | None,
    "What differs from the nearest earlier key, in a line; null where it was not compared.",
]


@dataclass(frozen=True)
class LookupsQuery:
    differs: Annotated[
        bool, Parameter(choices=("yes",)), "`yes`: the differences of each miss, for 20 lookups."
    ] = False


@dataclass(frozen=True)
class EarlierRuns:
    runs: Annotated[
        bool,
        Parameter(choices=("before",)),
        "`before`: compare with earlier runs of the same name.",
    ] = False


@dataclass(frozen=True)
class KeyComponent:
    """One component of a cache key."""

    name: Annotated[str, "torch's name of it."]
    digest: Annotated[str, "torch's hash of it."]
    value: Annotated[str, "torch's text of it."]


@dataclass(frozen=True)
class CacheLookupDetail(CacheLookup):
    """One cache lookup with its key."""

    file: FileName
    line: LineNumber
    artifact_id: Annotated[int | None, "`id` of the artifact that is torch's record of it."]
    differs: Differs
    traceback: Annotated[str | None, "Of a bypass: where torch decided it."]
    key_remark: Annotated[str | None, "Why no components are here; null where they are."]
    components: Annotated[list[KeyComponent], "Components of the key, in torch's order."]
    looked_at_count: Annotated[Count, "Earlier lookups that a miss was compared with."]
    nearest: Annotated[NearestLookup | None, "The earlier lookup whose key differs least."]
    changed: Annotated[
        tuple[ComponentChange, ...] | None,
        "Most important first; null if nothing was compared.",
    ]
    only_in_miss: Annotated[
        tuple[ComponentChange, ...] | None,
        "Most important first; null if nothing was compared.",
    ]
    only_in_earlier: Annotated[
        tuple[ComponentChange, ...] | None,
        "Most important first; null if nothing was compared.",
    ]
    same_count: Annotated[Count | None, "Components that are the same."]


@dataclass(frozen=True)
class LookupSummary(CacheLookup):
    """A lookup in a list; `differs` says which key components changed."""

    differs: Differs


@dataclass(frozen=True)
class CachesReport:
    """A run's cache lookups: totals by result, and one page of lookups."""

    results: Annotated[Sequence[CacheResult], "By cache, result and reason: at most 200."]
    lookups: Annotated[
        list[LookupSummary], "One page of lookups in order of time. With `differs=yes` at most 20."
    ]
    next: Annotated[str | None, "`cursor` of the next page of lookups, null on the last."]


_RUN = "/runs/<run_id>/caches"


@operation(_RUN)
def get_caches(detail: RunDetail, query: LookupsQuery, page: PageQuery) -> CachesReport:
    """Return a run's cache results by reason, and its cache lookups in order of time."""
    explain_count = MAX_EXPLAINED if query.differs else 0
    limit = min(page.limit, explain_count or page.limit)
    screen = build_caches(
        get_run_reader(detail.run.id),
        detail.run.id,
        page.cursor,
        limit,
        explain_count=explain_count,
    )
    lookups = [
        LookupSummary(**vars(row), differs=screen.differences.get(row.id))
        for row in screen.page.rows
    ]
    return CachesReport(screen.results, lookups, screen.page.next)


@operation(f"{_RUN}/<lookup_id>")
def get_one(detail: RunDetail, lookup_id: str, query: EarlierRuns) -> CacheLookupDetail:
    """Return one lookup: its key components and, for a miss, the difference from the nearest
    earlier key.
    """
    screen = build_lookup(
        get_run_reader(detail.run.id),
        detail.run.id,
        read_id(lookup_id),
        across=get_store() if query.runs else None,
    )
    if screen is None:
        refuse(f"Run {detail.run.id[:80]} has no cache lookup with the number {lookup_id[:40]}.")
    return make_lookup_report(screen)


def make_lookup_report(report: CacheLookupScreen) -> CacheLookupDetail:
    no_diff = dict.fromkeys(field.name for field in fields(KeyDiff))
    written = {
        "differs": report.difference,
        "traceback": report.traceback,
        "key_remark": report.key_remark,
        "components": [
            KeyComponent(part.name, part.digest, part.value) for part in report.components
        ],
        "looked_at_count": report.looked_at_count,
        "nearest": report.nearest,
    }
    return fill(
        CacheLookupDetail,
        vars(report.lookup) | written | (vars(report.diff) if report.diff else no_diff),
    )
