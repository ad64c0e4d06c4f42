"""What a page and the API say of one look-up in a compile cache: read from the store, then compared."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Any

from compileboard.app.analysis.cache_keys import KeyDiff
from compileboard.app.analysis.cache_nearest import find_nearest
from compileboard.app.queries.cache_keys import Earlier, Lookup, get_detail, list_earlier, list_runs_before, read_texts
from compileboard.collectors.payloads import Component, parse_components


@dataclass(frozen=True)
class LookupReport:
    """Hold one look-up with its key; for a miss the nearest earlier key, and how this one differs from it.

    `looked_at_count` is how many earlier look-ups there were to choose from in `run_count` runs.
    """

    lookup: Lookup
    detail: dict[str, Any]
    components: tuple[Component, ...] = field(repr=False)
    nearest: Earlier | None = None
    diff: KeyDiff | None = None
    looked_at_count: int = 0
    run_count: int = 1

    @property
    def traceback(self) -> str | None:
        """Return the traceback of a bypass."""
        said = self.detail.get("cache_bypass_traceback")
        lines = said if isinstance(said, list) else [said] if isinstance(said, str) else []
        return "\n".join(str(line).rstrip("\n") for line in lines).strip() or None

    @property
    def key_remark(self) -> str | None:
        """Say why the key's components are not there; None where they are."""
        if self.components:
            return None
        if self.lookup.result == "bypass":
            return "No key was made: the graph cannot be cached."
        if self.detail.get("component_count"):
            return "The components are not kept: the log was imported with --no-payloads, or only the hooks recorded."
        return "Not recorded by this torch: its record of this look-up lists no components."


def read_lookup(connection: sqlite3.Connection, lookup: Lookup, across: bool = False) -> LookupReport:
    """Read what a look-up's key is made of, and compare a miss with earlier keys of its run.

    With `across`, they are compared with keys of the runs of the same name before it instead.
    """
    components = tuple((parse_components(lookup.text) if lookup.text is not None else None) or ())
    report = LookupReport(lookup, get_detail(connection, lookup), components)
    if lookup.result != "miss" or lookup.text is None or not components:
        return report
    run_ids = list_runs_before(connection, lookup.run_id) if across else [lookup.run_id]
    earlier = list_earlier(connection, lookup, run_ids)
    texts = (
        (it, text, it.function_id is not None and it.function_id == lookup.function_id)
        for it, text in read_texts(connection, earlier)
    )
    nearest, diff = find_nearest(components, lookup.text, texts) or (None, None)
    return LookupReport(lookup, report.detail, components, nearest, diff, len(earlier), len(run_ids))


def summarize_diff(diff: KeyDiff, most: int = 3) -> str:
    """Say in a line what differs, what matters most first."""
    said = [it.summary for it in (*diff.changed, *diff.only_in_miss, *diff.only_in_earlier)]
    left_out = f", and {len(said) - most} more" if len(said) > most else ""
    return "; ".join(said[:most]) + left_out if said else "nothing: the same key was looked up before"
