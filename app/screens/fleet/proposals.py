"""Pairs of sides that the Compare page suggests where none is chosen."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from compileboard.app.analysis.comparison.sides import name_side
from compileboard.app.queries.dashboard.baselines import list_baselines
from compileboard.app.queries.dashboard.incidents import list_worst_incidents
from compileboard.app.queries.engine import Engine
from compileboard.app.queries.newest import RecorderClock
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.sides import find_default, find_side

MOST_OF_A_KIND = 3


@dataclass(frozen=True)
class ProposedPair:
    kind: str
    base: str
    new: str
    base_title: str
    new_title: str


def list_proposals(
    reader: sqlite3.Connection, engine: Engine, clock: RecorderClock
) -> list[ProposedPair]:
    pairs = {(base, new): kind for kind, base, new in _list_pairs(reader, engine, clock)}
    proposals = []
    for (base, new), kind in pairs.items():
        try:
            sides = [find_side(reader, engine, clock, side, "side") for side in (base, new)]
        except FilterError:  # its run was deleted
            continue
        titles = [
            f"baseline {side.baseline.name}" if side.baseline else name_side(side) for side in sides
        ]
        proposals.append(ProposedPair(kind, base, new, *titles))
    return proposals


def _list_pairs(
    reader: sqlite3.Connection, engine: Engine, clock: RecorderClock
) -> Iterator[tuple[str, str, str]]:
    default = find_default(reader, engine, clock, None, None)
    if default:
        yield "Newest run and the one before", *default
        for baseline in list_baselines(reader, limit=MOST_OF_A_KIND).rows:
            yield (
                f"Newest run and baseline {baseline.name}",
                f"baseline:{baseline.name}",
                default[1],
            )
    for incident in list_worst_incidents(reader, MOST_OF_A_KIND):
        if incident.last_good_run_id:
            title = f"Before and after: {incident.title}"
            yield title, incident.last_good_run_id, incident.first_bad_run_id
