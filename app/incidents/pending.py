"""What of a database detection has not looked at: cheap enough to ask every few seconds, without numpy."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from compileboard.app.queries.dashboard.incidents import get_detection
from compileboard.app.queries.fleet.series import SeriesRun, get_newest, list_point_runs, list_runs_with_results_since

VERSION = 4  # of the detector: one more when it would find otherwise, then everything is looked at again


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
    newest = get_newest(reader)  # first: what is recorded between the two is then looked at twice, and never not at all
    runs = list_point_runs(reader)
    seen = {} if everything or known is None or known.version != VERSION else known.seen
    # Runs that were deleted may have made findings, and their numbers may be given again: nothing is looked at then.
    needs_full_scan = not seen or _digest(runs, seen["run_place"]) != seen["runs"]
    waiting = [run.id for run in runs if run.state == "running"]
    now = asdict(newest) | {"runs": _digest(runs, newest.run_place), "waiting": waiting}
    told = json.dumps(now, separators=(",", ":"))
    return PendingRuns(runs, _list_new(reader, runs, {} if needs_full_scan else seen), needs_full_scan, told)


def _digest(runs: Sequence[SeriesRun], most_place: int) -> str:
    """Tell the runs up to a place from any others."""
    told = "\n".join(sorted(run.id for run in runs if run.place <= most_place))
    return hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _list_new(reader: sqlite3.Connection, runs: Sequence[SeriesRun], seen: Mapping[str, Any]) -> list[str]:
    ended = [run for run in runs if run.state != "running"]
    if not seen:
        return [series_run.id for series_run in ended]
    touched = {*list_runs_with_results_since(reader, seen["result_id"]), *seen["waiting"]}
    return [series_run.id for series_run in ended if series_run.place > seen["run_place"] or series_run.id in touched]
