"""Runs that a filter selects, and their totals: the same filter for the page and the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from compileboard.app.queries.engine import Engine
from compileboard.app.queries.fields import Count, TimeUs
from compileboard.app.queries.fleet.runs import _WHERE, RunFilter, _bind
from compileboard.app.queries.parameters import check_keys, list_names, read_filter
from compileboard.app.queries.run_rows import RUN_SOURCE

FILTERS = list_names(RunFilter)
_OTHERS = ("sort", "cursor", "limit", "done")


def read_run_filter(query: Mapping[str, str]) -> RunFilter:
    """Turn an address's query into a filter; what is empty is no limit.

    Raises: FilterError if a key is unknown or a value cannot be used.
    """
    check_keys(query, FILTERS, _OTHERS)
    return read_filter(RunFilter, query)


MOST_SLOTS = 48

WANTED = f"""
wanted as materialized (
  select r.id, r.started_us
  {RUN_SOURCE}
  where {_WHERE}
)
"""  # own texts only
WANTED_SLOTS = f"""
wanted as materialized (
  select
    r.id, r.started_us,
    (row_number() over (order by r.started_us, r.id) - 1) * :slots $div :run_count as slot
  {RUN_SOURCE}
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
    """One place of a trend: one run, or consecutive ones."""

    started_us: Annotated[TimeUs, "Start of its first run."]
    run_id: Annotated[str, "Its last run."]
    run_count: Annotated[Count, "Its runs."]


def bind_runs(runs: RunFilter) -> dict[str, Any]:
    """Make the values that WANTED's names stand for."""
    return _bind(runs) | {"text": None}


def list_slots(engine: Engine, runs: RunFilter) -> list[Slot]:
    """Divide the runs of a filter, oldest first, into at most MOST_SLOTS slots of consecutive ones."""
    values = bind_runs(runs)
    run_count = int(engine.rows(COUNT_SQL, values)[0][0])
    values |= {"slots": min(run_count, MOST_SLOTS), "run_count": max(run_count, 1)}
    return [Slot(row["started_us"], row["run_id"], row["run_count"]) for row in engine.rows(SLOTS_SQL, values)]


def bind_slots(runs: RunFilter, slots: list[Slot]) -> dict[str, Any]:
    """Make the values that WANTED_SLOTS' names stand for."""
    return bind_runs(runs) | {"slots": len(slots), "run_count": max(sum(slot.run_count for slot in slots), 1)}


@dataclass
class TrendTotals:
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
class TrendGrid:
    """Hold how often each distinct thing came in each slot, by id, and each kind of thing, most frequent first."""

    counts: Mapping[int, list[int]]
    slots: Sequence[Slot]
    kinds: tuple[TrendTotals, ...]

    def line(self, thing: int) -> list[float]:
        """Return a thing's mean count a run, slot by slot; empty if it is not among them."""
        return _per_run(self.counts.get(thing, ()), self.slots)

    @property
    def lines(self) -> dict[int, list[float]]:
        """Return every thing's line; a page asks for those it shows."""
        return {thing: self.line(thing) for thing in self.counts}

    @property
    def function_count(self) -> int:
        """Return how many functions the things are in."""
        return len({function for kind in self.kinds for function in kind.functions})


def _per_run(counts: Sequence[int], slots: Sequence[Slot]) -> list[float]:
    return [count / slot.run_count for count, slot in zip(counts, slots)]


def add_up(engine: Engine, cells: str, things: str, values: Mapping[str, Any], slots: list[Slot]) -> TrendGrid:
    """Sum cells (id, slot, count, guard failures or 0, compile_us) over things (id, kind, function id, GB id).

    The cells are summed here: they come unsorted, one a run and thing, and grouping them takes SQLite longer.
    """
    last = len(slots) - 1
    kinds: dict[str, tuple[TrendTotals, list[int]]] = {}
    # By thing: its counts by slot, its kind's, guard failures, compile time, its kind, its function.
    known: dict[int, list[Any]] = {}
    for thing, kind, function_id, gb_id in engine.stream(things, values):
        if kind not in kinds:
            kinds[kind] = TrendTotals(kind, gb_id, []), [0] * len(slots)
        known[thing] = [None, kinds[kind][1], 0, 0, kinds[kind][0], function_id]
    for thing, place, count, guard_failure_count, compile_us in engine.stream(cells, values) if slots else ():
        mine = known.get(thing)
        if mine is None:
            continue
        if mine[0] is None:
            mine[0] = [0] * len(slots)
        if place > last:
            place = last  # a run was added since the slots were made
        mine[0][place] += count
        mine[1][place] += count
        mine[2] += guard_failure_count
        mine[3] += compile_us
    seen = {thing: mine for thing, mine in known.items() if mine[0] is not None}
    for _counts, _of_kind, guard_failure_count, compile_us, sums, function_id in seen.values():
        sums.things += 1
        sums.guard_failure_count += guard_failure_count
        sums.compile_us += compile_us
        if function_id is not None:
            sums.functions.add(function_id)
    for sums, of_kind in kinds.values():
        sums.count = sum(of_kind)
        sums.line = _per_run(of_kind, slots)
    found = [sums for sums, _of_kind in kinds.values() if sums.things]
    found.sort(key=lambda totals: (-totals.count, -totals.guard_failure_count, totals.kind))
    return TrendGrid({thing: mine[0] for thing, mine in seen.items()}, slots, tuple(found))
