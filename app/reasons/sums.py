"""Sums of reasons in slots of consecutive runs, in SQLite, cached while `runs.pub` of a slot's runs
stays the same.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple

from compileboard.app.core.engine import Engine
from compileboard.app.runs.queries import (
    WANTED_SLOTS,
    RunFilter,
    TrendSlot,
    bind_runs,
    choose_slot_size,
    count_runs,
)

MAX_REMEMBERED = 300_000  # sums, of all filters: 0.3 KB each

NEWEST_PUB_SQL = "select pub from publications"  # deletions have a number too
STATES_SQL = f"""
with {WANTED_SLOTS}
select slot, min(started_us) as started_us, max(id) as run_id, count(*) as run_count,
  group_concat(pub) as pubs
from wanted
group by slot
order by slot
limit 48
"""  # noqa: S608  own texts only


class ReasonSum(NamedTuple):
    event_count: int
    partial_count: int
    duration_us: int
    run_count: int
    first_us: int
    last_us: int


class SlotState(NamedTuple):
    slot: TrendSlot
    pubs: str


@dataclass(frozen=True)
class SlotSums:
    state: SlotState
    reasons: Mapping[int, ReasonSum]
    run_count: int  # The number of runs that have any.
    limits: Mapping[
        int | None, int
    ]  # compiles that reached the recompile limit, by function; None: of all


@dataclass(frozen=True)
class ReasonSums:
    newest_pub: int  # The newest number of all runs when the state was read.
    slots: list[TrendSlot]
    parts: list[SlotSums]
    things: dict[int, tuple[str, int | None, str | None]] = field(
        default_factory=dict
    )  # kind, function, GB id
    made: dict[str, Any] = field(
        default_factory=dict
    )  # results derived from all of them, by caller

    @cached_property
    def totals(self) -> dict[int, ReasonSum]:
        totals: dict[int, ReasonSum] = {}
        for part in self.parts:
            for reason_id, new in part.reasons.items():
                old = totals.get(reason_id)
                totals[reason_id] = new if old is None else _add(old, new)
        return totals

    @cached_property
    def counts(self) -> dict[int, list[int]]:
        counts: dict[int, list[int]] = {}
        for number, part in enumerate(self.parts):
            for reason_id, total in part.reasons.items():
                line = counts.get(reason_id)
                if line is None:
                    line = counts[reason_id] = [0] * len(self.parts)
                line[number] = total.event_count
        return counts

    @cached_property
    def size(self) -> int:
        return sum(len(part.reasons) + 1 for part in self.parts) + 1

    @property
    def run_count(self) -> int:
        return sum(part.run_count for part in self.parts)

    @cached_property
    def limits(self) -> dict[int | None, int]:
        limits: dict[int | None, int] = {}
        for part in self.parts:
            for function_id, count in part.limits.items():
                limits[function_id] = limits.get(function_id, 0) + count
        return limits


def _add(old: ReasonSum, new: ReasonSum) -> ReasonSum:
    return ReasonSum(
        old.event_count + new.event_count,
        old.partial_count + new.partial_count,
        old.duration_us + new.duration_us,
        old.run_count + new.run_count,
        min(old.first_us, new.first_us),
        max(old.last_us, new.last_us),
    )


class _SumsCache:
    def __init__(self) -> None:
        self._lock = Lock()
        self._sums: OrderedDict[object, ReasonSums] = OrderedDict()
        self._size = 0

    def get(self, key: object) -> ReasonSums | None:
        with self._lock:
            if key in self._sums:
                self._sums.move_to_end(key)
            return self._sums.get(key)

    def put(self, key: object, sums: ReasonSums) -> None:
        with self._lock:
            self._drop(key)
            self._sums[key] = sums
            self._size += sums.size
            while self._size > MAX_REMEMBERED:
                self._drop(next(iter(self._sums)))

    def _drop(self, key: object) -> None:
        dropped = self._sums.pop(key, None)
        self._size -= dropped.size if dropped else 0


_memory = _SumsCache()


def sum_reasons(
    engine: Engine,
    table: str,
    runs: RunFilter,
    read_slots: Callable[[Mapping[str, Any]], Mapping[int, Any]],
) -> ReasonSums:
    file = _identify(engine)
    key = file, table, tuple(bind_runs(runs).items())
    known = _memory.get(key) if file else None
    (newest_pub,) = engine.rows(NEWEST_PUB_SQL)[0]
    if known is not None and known.newest_pub == newest_pub:
        return known
    run_count = count_runs(engine, replace(runs, text=None))
    values = bind_runs(runs) | {"slot_size": choose_slot_size(run_count)}
    states = [
        SlotState(TrendSlot(row["started_us"], row["run_id"], row["run_count"]), row["pubs"])
        for row in engine.rows(STATES_SQL, values)
    ]
    by_state = {part.state: part for part in known.parts} if known else {}
    new = [number for number, state in enumerate(states) if state not in by_state]
    read = read_slots({**values, "slots": new}) if new else {}
    parts = [
        by_state[state] if state in by_state else SlotSums(state, *read[number])
        for number, state in enumerate(states)
    ]
    sums = ReasonSums(
        newest_pub, [state.slot for state in states], parts, known.things if known else {}
    )
    if file:
        _memory.put(key, sums)
    return sums


DatabaseState = tuple[tuple[str, int, int], int]


def read_database_state(engine: Engine) -> DatabaseState | None:
    """Return the file and the number of its last commit that changed a run; None in ClickHouse."""
    file = _identify(engine)
    return (file, engine.rows(NEWEST_PUB_SQL)[0][0]) if file else None


def _identify(engine: Engine) -> tuple[str, int, int] | None:
    try:
        status = os.stat(engine.name)
    except OSError:
        return None
    return engine.name, status.st_dev, status.st_ino


_MONTHLY = frozenset(
    {"text", "name", "suite", "since_us", "before_us"}
)  # a string: lists of reasons have one of their own
_LAST = 999912


@dataclass(frozen=True)
class ThingCounts:
    table: str
    key: str
    columns: Sequence[str]
    time: str = "compile_us"

    @property
    def months(self) -> str:
        return f"{self.table.removeprefix('run_').removesuffix('s')}_months"

    @property
    def kinds(self) -> str:
        return f"{self.table.removesuffix('s')}_kinds_rows"


def can_use_months(runs: RunFilter) -> bool:
    return all(value in (None, "") for name, value in vars(runs).items() if name not in _MONTHLY)


def bind_months(runs: RunFilter) -> dict[str, Any]:
    if not can_use_months(runs):
        return {}
    first = 0 if runs.since_us is None else _shift_month(runs.since_us - 1, 1)
    last = _LAST if runs.before_us is None else _shift_month(runs.before_us, -1)
    return {"first_month": first, "last_month": last}


def _shift_month(time_us: int, months: int) -> int:
    try:
        time = datetime.fromtimestamp(time_us // 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return _LAST + months if time_us > 0 else max(months, 0) * 102
    year, month = divmod(time.year * 12 + time.month - 1 + months, 12)
    return year * 100 + month + 1


_MONTHS = """, months_inside as materialized (
  select month
  from clean_months
  where month between :first_month and :last_month
)"""


def months_sql(runs: RunFilter) -> str:
    return _MONTHS if can_use_months(runs) else ""


def per_thing_sql(counts: ThingCounts, runs: RunFilter, only: str = "") -> str:
    of_month = "".join(
        f"and m.{name} = :{name}\n    " for name in ("suite", "name") if getattr(runs, name)
    )
    columns = (*counts.columns, counts.time)

    def sums(alias: str, names: Sequence[str]) -> str:
        return ", ".join(f"sum({alias}.{name}) as {name}" for name in names)

    def only_of(alias: str) -> str:
        return f"and {only.format(key=f'{alias}.{counts.key}')}" if only else ""

    of_runs = f"""
    select
      b.{counts.key} as id, {sums("b", columns)}, toInt64(count()) as run_count,
      min(b.started_us) as first_us, max(b.started_us) as last_us
    from {counts.table}_rows as b
    where b.pub in (select pub from wanted)
      {"and b.month not in (select month from months_inside)" if can_use_months(runs) else ""}
    {only_of("b")}
    group by b.{counts.key}
"""  # noqa: S608  own names only
    if not can_use_months(runs):
        return of_runs
    return f"""
  select
    s.id as id, {sums("s", (*columns, "run_count"))}, min(s.first_us) as first_us,
    max(s.last_us) as last_us
  from (
    select
      m.{counts.key} as id, {sums("m", (*columns, "run_count"))}, min(m.first_us) as first_us,
      max(m.last_us) as last_us
    from {counts.months} as m
    where m.month in (select month from months_inside)
    {of_month}{only_of("m")}
    group by m.{counts.key}
    union all
    {of_runs}
  ) as s
  group by s.id
"""  # noqa: S608  own names only
