"""Find runs that detection has not processed. This is cheap enough to query every few seconds, and
needs no numpy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.benchmarks.series_queries import SeriesRun, get_newest_pub, list_point_runs
from compileboard.app.core.store import Store
from compileboard.app.incidents.queries import (
    Publications,
    get_detection,
    get_publications,
    has_unpublished_removal,
)

# Of the detector: increase it when it would detect something else, and all series are scanned
# again.
VERSION = 9


@dataclass(frozen=True)
class PendingRuns:
    runs: Sequence[SeriesRun]
    run_ids: Sequence[str]
    needs_full_scan: bool
    cursor: str


def find_pending_runs(store: Store, *, everything: bool = False) -> PendingRuns:
    known = get_detection(store.board)
    # Read before the runs: a change in between is processed twice rather than never.
    newest = _read_publications(store)
    progress = {"pub": newest.pub}
    if store.engine.dialect != "sqlite":
        progress["removed_pub"] = newest.removed_pub
    seen = None if everything or known is None or known.version != VERSION else known.seen
    if seen == {**progress, "waiting": []}:
        return PendingRuns((), (), needs_full_scan=False, cursor="")
    runs = list_point_runs(store.engine)
    # Changes may have come from deleted runs.
    needs_full_scan = seen is None or newest.removed_pub > seen.get("removed_pub", seen["pub"])
    ended = [run for run in runs if run.state != "running"]
    if seen is not None and not needs_full_scan:
        ended = [run for run in ended if run.pub > seen["pub"] or run.id in seen["waiting"]]
    waiting = [run.id for run in runs if run.state == "running"]
    cursor = json.dumps({**progress, "waiting": waiting}, separators=(",", ":"))
    return PendingRuns(runs, [run.id for run in ended], needs_full_scan, cursor)


def _read_publications(store: Store) -> Publications:
    newest = get_publications(store.board)
    if store.engine.dialect == "sqlite":
        return newest
    removed_pub = -1 if has_unpublished_removal(store.board) else newest.removed_pub
    return Publications(get_newest_pub(store.engine), removed_pub)
