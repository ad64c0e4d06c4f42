"""What of a database detection has not looked at: cheap enough to ask every few seconds, without numpy."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.queries.findings import get_detection
from app.queries.series_points import PointRun, get_newest, list_point_runs, list_runs_with_results_since

VERSION = 1  # of the detector: one more when it would find otherwise, then everything is looked at again


@dataclass(frozen=True)
class News:
    """Hold the runs that ended since detection looked; `is_whole` is where it has to look at everything.

    `seen` is what it will have looked at then, as the table `detection` keeps it.
    """

    runs: Sequence[PointRun]
    run_ids: Sequence[str]
    is_whole: bool
    seen: str


def find_news(reader: sqlite3.Connection, *, everything: bool = False) -> News:
    """Find what detection has to look at."""
    known = get_detection(reader)
    runs, newest = list_point_runs(reader), get_newest(reader)
    seen = {} if everything or known is None or known.version != VERSION else known.seen
    # Runs that were deleted may have made findings: then nothing can be taken as looked at.
    is_whole = not seen or newest.run_count < seen["run_count"]
    waiting = [it.id for it in runs if it.state == "running"]
    told = json.dumps(asdict(newest) | {"waiting": waiting}, separators=(",", ":"))
    return News(runs, _list_new(reader, runs, {} if is_whole else seen), is_whole, told)


def _list_new(reader: sqlite3.Connection, runs: Sequence[PointRun], seen: Mapping[str, Any]) -> list[str]:
    ended = [it for it in runs if it.state != "running"]
    if not seen:
        return [it.id for it in ended]
    touched = {*list_runs_with_results_since(reader, seen["result_id"]), *seen["waiting"]}
    return [it.id for it in ended if it.place > seen["run_place"] or it.id in touched]
