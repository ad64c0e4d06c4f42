"""Which runs a cross-run page looks at, and the slots of consecutive runs that its trends are drawn over.

Everything comes from the roll-ups that ingest keeps: run_breaks, run_causes, run_functions. A page costs what the
number of runs × distinct things costs, not the number of events.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.queries.page import FilterError
from app.queries.run_filter import FILTERS, read_run_filter
from app.queries.runs import _SOURCE, _WHERE, RunFilter, _bind

MOST_SLOTS = 48
RUN_FILTERS = tuple(key for key in FILTERS if key != "q")
OTHER_KEYS = ("sort", "cursor", "limit")
_LONGEST = 200

WANTED = f"""
wanted as materialized (
  select r.id, r.started_us
  {_SOURCE}
  where {_WHERE}
)
"""  # own texts only
WANTED_SLOTS = f"""
wanted as materialized (
  select
    r.id, r.started_us,
    (row_number() over (order by r.started_us, r.id) - 1) * :slots / :run_count as slot
  {_SOURCE}
  where {_WHERE}
)
"""
SLOTS_SQL = f"""
with {WANTED_SLOTS}
select slot, min(started_us) as started_us, max(id) as run_id, count(*) as run_count
from wanted
group by slot
order by slot
limit :slots
"""  # noqa: S608
COUNT_SQL = f"""
with {WANTED}
select count(*) as run_count
from wanted
"""  # noqa: S608


@dataclass(frozen=True)
class Slot:
    """Hold one place of a trend: one run, or some consecutive runs where there are more than MOST_SLOTS."""

    started_us: int
    run_id: str
    run_count: int


def read_filter(query: Mapping[str, str], own: tuple[str, ...]) -> tuple[RunFilter, dict[str, str | None]]:
    """Split an address's query into the filter of runs and the page's own filters, empty ones as None.

    Raises: FilterError if a key is unknown or a value cannot be used.
    """
    known = (*own, *RUN_FILTERS)
    for key in query:
        if key not in known and key not in OTHER_KEYS:
            raise FilterError(f"{key[:40]}: there is no such filter; known are {', '.join(known)}")
    given = {key: query.get(key, "").strip() or None for key in own}
    for key, value in given.items():
        if value and len(value) > _LONGEST:
            raise FilterError(f"{key}: at most {_LONGEST} characters, this has {len(value)}")
    return read_run_filter({key: query[key] for key in RUN_FILTERS if key in query}), given


def bind_runs(runs: RunFilter) -> dict[str, Any]:
    """Make the values that WANTED's names stand for."""
    return _bind(runs) | {"text": None}


def list_slots(connection: sqlite3.Connection, runs: RunFilter) -> list[Slot]:
    """Divide the runs of a filter, oldest first, into at most MOST_SLOTS slots of consecutive ones."""
    values = bind_runs(runs)
    run_count = int(connection.execute(COUNT_SQL, values).fetchone()["run_count"])
    values |= {"slots": min(run_count, MOST_SLOTS), "run_count": max(run_count, 1)}
    return [Slot(row["started_us"], row["run_id"], row["run_count"]) for row in connection.execute(SLOTS_SQL, values)]


def bind_slots(runs: RunFilter, slots: list[Slot]) -> dict[str, Any]:
    """Make the values that WANTED_SLOTS' names stand for."""
    return bind_runs(runs) | {"slots": len(slots), "run_count": max(sum(slot.run_count for slot in slots), 1)}


@dataclass
class Sums:
    """Hold what the distinct things of one kind came to, and their mean count a run, slot by slot."""

    kind: str
    gb_id: str | None
    line: list[float]
    things: int = 0
    functions: set[int] = field(default_factory=set)
    count: int = 0
    guard_failure_count: int = 0
    compile_us: int = 0


@dataclass(frozen=True)
class Cells:
    """Hold a trend for each distinct thing, by id, and for each kind of thing, most frequent first."""

    lines: dict[int, list[float]]
    kinds: tuple[Sums, ...]

    @property
    def function_count(self) -> int:
        """Return how many functions the things are in."""
        return len({function for it in self.kinds for function in it.functions})


def add_up(cells: Iterable[tuple[Any, ...]], things: Iterable[tuple[Any, ...]], slots: list[Slot]) -> Cells:
    """Sum cells (id, slot, count, guard failures or 0, compile_us) over things (id, kind, function id, GB id)."""
    known = {thing: rest for thing, *rest in things}
    found: dict[int, list[Any]] = {}
    for thing, place, count, guard_failure_count, compile_us in cells:
        if thing not in known:
            continue
        if thing not in found:
            found[thing] = [[0] * len(slots), 0, 0]
        mine = found[thing]
        mine[0][min(place, len(slots) - 1)] += count  # a run may have been added since the slots were made
        mine[1] += guard_failure_count
        mine[2] += compile_us
    lines: dict[int, list[float]] = {}
    kinds: dict[str, Sums] = {}
    for thing, (counts, guard_failure_count, compile_us) in found.items():
        kind, function_id, gb_id = known[thing]
        line = lines[thing] = [count / slot.run_count for count, slot in zip(counts, slots)]
        sums = kinds.setdefault(kind, Sums(kind, gb_id, [0.0] * len(slots)))
        sums.line = [one + other for one, other in zip(sums.line, line)]
        sums.things += 1
        sums.functions |= {function_id} - {None}
        sums.count += sum(counts)
        sums.guard_failure_count += guard_failure_count
        sums.compile_us += compile_us
    return Cells(lines, tuple(sorted(kinds.values(), key=lambda it: (-it.count, -it.guard_failure_count, it.kind))))
