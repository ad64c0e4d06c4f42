"""What of a database detection has not looked at: cheap enough to ask every few seconds, without numpy."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.queries.dashboard.incidents import get_detection, get_publications
from compileboard.app.queries.engine import SqliteEngine
from compileboard.app.queries.fleet.series import SeriesRun, list_point_runs

VERSION = 7  # of the detector: one more when it would find otherwise, then everything is looked at again


@dataclass(frozen=True)
class PendingRuns:
    """Runs added since the last detection pass; `needs_full_scan` is where every series has to be looked at.

    `cursor` is how far detection will have come then, as the table `detection` stores it.
    """

    runs: Sequence[SeriesRun]
    run_ids: Sequence[str]
    needs_full_scan: bool
    cursor: str


def find_pending_runs(reader: sqlite3.Connection, *, everything: bool = False) -> PendingRuns:
    """Find what detection has to look at."""
    known = get_detection(reader)
    newest = get_publications(reader)  # before the runs: what comes between the two is looked at twice, not never
    seen = None if everything or known is None or known.version != VERSION else known.seen
    if seen == {"pub": newest.pub, "waiting": []}:
        return PendingRuns((), (), needs_full_scan=False, cursor="")
    runs = list_point_runs(SqliteEngine(reader))
    # Runs that were deleted may have made changes.
    needs_full_scan = seen is None or newest.removed_pub > seen["pub"]
    ended = [run for run in runs if run.state != "running"]
    if seen is not None and not needs_full_scan:
        ended = [run for run in ended if run.pub > seen["pub"] or run.id in seen["waiting"]]
    waiting = [run.id for run in runs if run.state == "running"]
    cursor = json.dumps({"pub": newest.pub, "waiting": waiting}, separators=(",", ":"))
    return PendingRuns(runs, [run.id for run in ended], needs_full_scan, cursor)
