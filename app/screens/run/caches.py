"""A run's compile caches, and one lookup compared with the nearest earlier key."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from compileboard.app.analysis.caches.keys import ComponentChange, KeyDiff
from compileboard.app.analysis.caches.lookups import (
    ComponentGroup,
    find_nearest,
    group_components,
    summarize_diff,
)
from compileboard.app.engines.store import Store, open_run_or_board
from compileboard.app.queries.page import Page
from compileboard.app.queries.run import failures
from compileboard.app.queries.run.caches import (
    RUNS_BACK,
    Earlier,
    Lookup,
    get_detail,
    get_lookup,
    list_earlier,
    list_runs_before,
    read_texts,
)
from compileboard.app.queries.run.failures import CacheLookup, CacheResult, CudagraphSkip
from compileboard.app.screens.run.run import MOST_SKIPS
from compileboard.collectors.store.payloads import Component, parse_components

MOST_EXPLAINED = 20  # misses of one page; each is compared with hundreds of keys


@dataclass(frozen=True)
class CachesScreen:
    results: Sequence[CacheResult]
    page: Page[CacheLookup]
    skips: Page[CudagraphSkip]
    differences: Mapping[int, str]


def build_caches(
    reader: sqlite3.Connection,
    run_id: str,
    cursor: str | None = None,
    limit: int = 50,
    *,
    explain_count: int = 0,
) -> CachesScreen:
    page = failures.list_cache_lookups(reader, run_id, cursor, limit)
    misses = [row for row in page.rows if row.result == "miss"][:explain_count]
    differences = {
        row.id: text for row in misses if (text := explain_miss(reader, run_id, row.id)) is not None
    }
    return CachesScreen(
        results=failures.count_cache_results(reader, run_id),
        page=page,
        skips=failures.list_cudagraph_skips(reader, run_id, limit=MOST_SKIPS),
        differences=differences,
    )


def explain_miss(reader: sqlite3.Connection, run_id: str, lookup_id: int) -> str | None:
    screen = build_lookup(reader, run_id, lookup_id)
    return screen.difference if screen is not None else None


@dataclass(frozen=True)
class CacheLookupScreen:
    """One lookup with its key and, for a miss, the difference from the nearest earlier key.

    `looked_at_count` earlier lookups in `run_count` runs were candidates, of at most
    `most_runs` runs.
    """

    lookup: Lookup
    detail: dict[str, Any]
    components: tuple[Component, ...] = field(repr=False)
    nearest: Earlier | None = None
    diff: KeyDiff | None = None
    looked_at_count: int = 0
    run_count: int = 1
    most_runs: int = RUNS_BACK

    @property
    def difference(self) -> str | None:
        return None if self.diff is None else summarize_diff(self.diff)

    @cached_property
    def changes(self) -> tuple[ComponentChange, ...]:
        diff = self.diff
        return () if diff is None else (*diff.changed, *diff.only_in_miss, *diff.only_in_earlier)

    @cached_property
    def groups(self) -> list[ComponentGroup]:
        return group_components(self.components)

    @property
    def traceback(self) -> str | None:
        value = self.detail.get("cache_bypass_traceback")
        lines = value if isinstance(value, list) else [value] if isinstance(value, str) else []
        return "\n".join(str(line).rstrip("\n") for line in lines).strip() or None

    @property
    def key_remark(self) -> str | None:
        if self.components:
            return None
        if self.lookup.result == "bypass":
            return "No key was made: the graph cannot be cached."
        if self.detail.get("component_count"):
            return (
                "Key components not recorded. Import the log without --no-payloads, or record "
                "with --level full."
            )
        return "Not recorded by this torch: its record of this lookup lists no components."


def build_lookup(
    reader: sqlite3.Connection, run_id: str, lookup_id: int, across: Store | None = None
) -> CacheLookupScreen | None:
    """Read a lookup's key, and for a miss compare it with earlier keys of its run; None if it does
    not exist.

    With a store as `across`, compare with keys of earlier runs of the same name instead.
    """
    lookup = get_lookup(reader, run_id, lookup_id)
    if lookup is None:
        return None
    components = tuple((parse_components(lookup.text) if lookup.text is not None else None) or ())
    detail = get_detail(reader, lookup)
    if lookup.result != "miss" or lookup.text is None or not components:
        return CacheLookupScreen(lookup, detail, components)
    run_ids = list_runs_before(across.board, lookup.run_id) if across else [lookup.run_id]
    open_run = partial(open_run_or_board, across) if across else lambda _run_id: reader
    earlier = list_earlier(open_run, lookup, run_ids)
    nearest, diff = find_nearest(components, lookup.text, read_texts(open_run, earlier)) or (
        None,
        None,
    )
    return CacheLookupScreen(lookup, detail, components, nearest, diff, len(earlier), len(run_ids))
