"""The order of runs for detection: along the ancestry of their commits where that is known, else by time."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from compileboard.app.analysis.ancestry import Parents, order_commits
from compileboard.app.analysis.kept import keep_ancestry
from compileboard.app.queries.series_points import PointRun


def rank_runs(connection: sqlite3.Connection, runs: Sequence[PointRun]) -> Mapping[str, int]:
    """Give each run its rank within its branch; an older commit that is measured later stands where it belongs."""
    commits = {it.commit for it in runs if it.commit}
    parents = keep_ancestry(connection, sorted(commits))
    branches: dict[str, list[PointRun]] = {}
    for it in runs:
        branches.setdefault(it.branch, []).append(it)
    return {
        it.id: rank for members in branches.values() for rank, it in enumerate(_sort_branch(members, parents))
    }  # fmt: skip


def _sort_branch(runs: Sequence[PointRun], parents: Parents) -> Sequence[PointRun]:
    """Sort one branch's runs, which come by time; one history has to hold all of their commits."""
    seen: dict[str, int] = {}
    for it in runs:
        if not it.commit or it.commit not in parents:
            return runs
        seen.setdefault(it.commit, it.started_us)
    order = order_commits(seen, parents)
    if order.unknown or order.histories > 1:
        return runs
    return sorted(runs, key=lambda it: (order.places[it.commit or ""], it.started_us, it.id))
