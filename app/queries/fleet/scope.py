"""Read a run filter from an address, the same for the page and the API."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from compileboard.app.queries.fleet.runs import _SOURCE, _WHERE, STATES, RunFilter, _bind
from compileboard.app.queries.page import FilterError

FILTERS = ("q", "name", "suite", "tag", "host", "gpu", "torch", "commit", "state", "since", "until")
_OTHERS = ("sort", "cursor", "limit", "done")
_LONGEST_TEXT = 200
_DAY = timedelta(days=1)


def read_run_filter(query: Mapping[str, str]) -> RunFilter:
    """Turn an address's query into a filter; what is empty is no limit.

    Raises: FilterError if a key is unknown or a value cannot be used.
    """
    for key in query:
        if key not in FILTERS and key not in _OTHERS:
            raise FilterError(f"{key[:40]}: there is no such filter; known are {', '.join(FILTERS)}")
    given = {key: query.get(key, "").strip() or None for key in FILTERS}
    for key, value in given.items():
        if value and len(value) > _LONGEST_TEXT:
            raise FilterError(f"{key}: at most {_LONGEST_TEXT} characters, this has {len(value)}")
    state, commit = given["state"], given["commit"]
    if state and state not in STATES:
        raise FilterError(f"state: {state!r} is not one of {', '.join(STATES)}")
    if commit and not all(letter in "0123456789abcdefABCDEF" for letter in commit):
        raise FilterError(f"commit: {commit!r} is not the beginning of a commit's hash")
    tag_key, _equals, tag_value = (given["tag"] or "").partition("=")
    since_us, _ = read_date("since", given["since"])
    _, before_us = read_date("until", given["until"])
    if since_us and before_us and since_us >= before_us:
        raise FilterError(f"since: {given['since']} is after until: {given['until']}, so nothing can match")
    return RunFilter(
        text=given["q"],
        name=given["name"],
        suite=given["suite"],
        tag_key=tag_key or None,
        tag_value=tag_value or None,
        host=given["host"],
        gpu=given["gpu"],
        torch=given["torch"],
        commit=commit,
        state=state,
        since_us=since_us,
        before_us=before_us,
    )


def read_date(key: str, text: str | None) -> tuple[int | None, int | None]:
    """Return where a day (or a moment) begins and where the next one does, in microseconds since the epoch."""
    if text is None:
        return None, None
    try:
        moment = datetime.fromisoformat(text)
        start = (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
        step = _DAY if len(text) <= len("2026-11-21") else timedelta(microseconds=1)
        return _microseconds(start), _microseconds(start + step)
    except (ValueError, OverflowError):
        raise FilterError(f"{key}: {text!r} is not a date; write it as 2026-11-21 (days are UTC)") from None


def _microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)


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
        return len({function for it in self.kinds for function in it.functions})


def _per_run(counts: Sequence[int], slots: Sequence[Slot]) -> list[float]:
    return [count / slot.run_count for count, slot in zip(counts, slots)]


def add_up(
    connection: sqlite3.Connection, cells: str, things: str, values: Mapping[str, Any], slots: list[Slot]
) -> TrendGrid:
    """Sum cells (id, slot, count, guard failures or 0, compile_us) over things (id, kind, function id, GB id).

    The cells are summed here: they come unsorted, one a run and thing, and grouping them takes SQLite longer.
    """
    last = len(slots) - 1
    kinds: dict[str, tuple[TrendTotals, list[int]]] = {}
    # By thing: its counts by slot, its kind's, guard failures, compile time, its kind, its function.
    known: dict[int, list[Any]] = {}
    for thing, kind, function_id, gb_id in _plain(connection, things, values):
        if kind not in kinds:
            kinds[kind] = TrendTotals(kind, gb_id, []), [0] * len(slots)
        known[thing] = [None, kinds[kind][1], 0, 0, kinds[kind][0], function_id]
    for thing, place, count, guard_failure_count, compile_us in _plain(connection, cells, values) if slots else ():
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
    found.sort(key=lambda it: (-it.count, -it.guard_failure_count, it.kind))
    return TrendGrid({thing: mine[0] for thing, mine in seen.items()}, slots, tuple(found))


def _plain(connection: sqlite3.Connection, sql: str, values: Mapping[str, Any]) -> sqlite3.Cursor:
    """Run a statement whose many rows are wanted as tuples."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(sql, values)
