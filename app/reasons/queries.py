"""Queries of reasons across runs: how often each occurred, where, since when, and at what cost.

A reason is why graphs broke (a distinct graph break) or why functions were recompiled (a recompile
cause). `ReasonSubject` has the differences between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from heapq import nlargest, nsmallest
from typing import Annotated, Any, NamedTuple

from compileboard.app.core.engine import Engine, Row, get_row
from compileboard.app.core.fields import Count, RunId, StartTime, Title
from compileboard.app.core.newest import SHOWN_STATE
from compileboard.app.core.page import Page, check_order, decode_cursor, make_page, recorded_us_sql
from compileboard.app.core.parameters import list_names, read_query
from compileboard.app.core.rows import make_row
from compileboard.app.reasons.reason_trends import (
    KindSums,
    TimeOfReasons,
    TrendGrid,
    make_grid,
    read_grid,
)
from compileboard.app.reasons.sums import (
    ReasonSum,
    ReasonSums,
    ThingCounts,
    bind_months,
    months_sql,
    per_thing_sql,
    sum_reasons,
)
from compileboard.app.runs.queries import (
    WANTED,
    WANTED_PUBS,
    WANTED_SLOT_PUBS,
    WANTED_SLOTS,
    RunFilter,
    TrendSlot,
    bind_runs,
    bind_slots,
    list_slots,
)
from compileboard.collectors.contract.fingerprints import format_id, parse_id

_ALL_LIMITS = """,
  (
    select coalesce(sum(t.recompile_limit_count), 0)
    from wanted as w
    $join run_totals as t on t.run_id = w.id
  ) as limit_count
"""
_LIMITS_OF_WANTED = "(select coalesce(sum(recompile_limit_count), 0) from wanted)"
_FUNCTION_COUNTS = ThingCounts("run_functions", "function_id", ("recompile_limit_count",))
_FUNCTION_LIMITS = """,
  (
    select coalesce(sum(u.recompile_limit_count), 0)
    from recompile_causes as c
    join run_functions as u on u.function_id = c.function_id
    join runs as r on r.id = u.run_id and r.source <> 'trial'
    where c.id = :id
  ) as limit_count
"""


SLOT_LIMITS_SQL = f"""
with {WANTED_SLOTS}
select w.slot, u.function_id, sum(u.recompile_limit_count) as limit_count
from wanted as w
$join run_functions as u on u.run_id = w.id
where w.slot $in(:slots)
  and u.recompile_limit_count > 0
group by w.slot, u.function_id
union all
select w.slot, null, sum(t.recompile_limit_count)
from wanted as w
$join run_totals as t on t.run_id = w.id
where w.slot $in(:slots)
group by w.slot
limit 200000
"""  # noqa: S608  own texts only


class ReasonOrder(NamedTuple):
    key: str
    is_up: bool = False
    is_after: bool = False

    def sort_key(self, row: Mapping[str, Any]) -> tuple[int, int]:
        return row[self.key] or 0, row["id"]


@dataclass(frozen=True)
class ReasonSubject:
    """The tables and columns of one kind of reason.

    In SQL `d` is a reason, `f` its function, `b` its counts in a run and `e` one of its events.
    """

    noun: str  # singular, for the message if it is not found
    table: str  # one row per reason
    run_table: str  # one row per run and reason
    key: str  # the reason in run_table
    counts: tuple[str, ...]  # summed columns of run_table, occurrences first
    columns: str  # columns of `table`, in addition to id, fingerprint and function
    kind: str
    exact: Mapping[str, str]  # fields of the filter, and the columns they must equal
    texts: Sequence[str]  # columns that the filter's text is searched in, besides the function
    orders: Mapping[str, str]  # orders of a list, default first; none is ever null
    events_sql: str
    events_of_newest: str  # joins the events of one reason to the runs `newest`
    filter: type
    reason: type
    summarize: Callable[[TrendGrid, Mapping[str, int]], Any]
    event: type
    total: str = "graph_break_count"  # The column with a run's total.
    time: str = "compile_us"  # column of run_table, and of a reason
    gb_id: str = "null"
    has_causes: bool = True  # whether a run's causes include it, with fixes
    # Whether compiles of its function that hit the recompile limit are shown with a reason
    has_limits: bool = False
    has_statuses: bool = False  # whether its filter has `issue_ids`, null for all

    @property
    def count(self) -> str:
        return self.counts[0]

    def describe_absence(self, text: str) -> str:
        return f"There is no {self.noun} {text[:40]}; its runs may have been deleted."

    @property
    def default_order(self) -> str:
        return next(iter(self.orders))

    @property
    def names(self) -> tuple[str, ...]:
        return list_names(self.filter)

    def read_filter(self, query: Mapping[str, str]) -> Any:
        """Read the subject's filter from a query. Raises FilterError for an unknown key or unusable
        value.
        """
        return read_query(self.filter, query)

    def bind(self, selected: Any) -> dict[str, Any]:
        own = {name: getattr(selected, name) for name in (*self.exact, "function")}
        if self.has_statuses:
            own["issue_ids"] = selected.issue_ids or ()
        return bind_runs(selected.runs) | own | {"reason_text": selected.text}

    def matching_sql(self, selected: Any) -> str:
        location = "coalesce(f.file, '') || ':' || coalesce(f.name, '')"
        exact = "".join(
            f"and (:{name} is null or {column} = :{name})\n    "
            for name, column in self.exact.items()
        )
        if self.has_statuses and selected.issue_ids is not None:
            exact += "and d.id $in(:issue_ids)\n    "
        texts = (f"instr(lower(coalesce({text}, '')), lower(:reason_text))" for text in self.texts)
        return f"""
matching as materialized (
  select d.id, {self.kind} as kind, d.function_id, {self.gb_id} as gb_id
  from {self.table} as d
  left join functions as f on f.id = d.function_id
  where (:function is null or instr(lower({location}), lower(:function)))
    {exact}and (:reason_text is null or {" or ".join(texts)} or instr(lower({location}),
      lower(:reason_text)))
)
"""  # noqa: S608  own texts only

    @property
    def sums(self) -> ThingCounts:
        return ThingCounts(self.run_table, self.key, self.counts, self.time)

    def totals_sql(
        self,
        selected: Any,
        ordering: ReasonOrder | None,
        *,
        with_kinds: bool = False,
        only: str = "",
    ) -> str:
        """Return the SQL of the totals of reasons and, `with_kinds`, of their kinds.

        Columns of the list: `is_listed`, `id`, the counts, `run_count`, the time, `first_us`,
        `last_us`; of the kinds: `kind`, `gb_id`, `distinct_count`, `function_count`, `is_of_all`.
        """
        is_narrow = self.is_narrowed(selected)
        matching = (
            self.matching_sql(selected) if is_narrow else self._everything if with_kinds else ""
        )
        only = only or ("{key} in (select id from matching)" if is_narrow else "")
        parts = [self._listed_sql(ordering)] if ordering else []
        parts += [self._kinds_sql] if with_kinds else []
        return f"""
with {WANTED_PUBS}{months_sql(selected.runs)}{matching and f", {matching}"},
summed as materialized ({per_thing_sql(self.sums, selected.runs, only)})
{"union all".join(parts)}
"""

    def _listed_sql(self, ordering: ReasonOrder) -> str:
        key, direction, sign = (
            ordering.key,
            "asc" if ordering.is_up else "desc",
            ">" if ordering.is_up else "<",
        )
        behind = (
            f"where (p.{key}, p.id) {sign} (:after_key, :after_id)" if ordering.is_after else ""
        )
        return f"""
select
  1 as is_listed, id, {", ".join(self.counts)}, run_count, {self.time}, first_us, last_us,
  null as kind, null as gb_id, 0 as distinct_count, 0 as function_count, 0 as is_of_all
from (
  select p.*
  from summed as p
  {behind}
  order by p.{key} {direction}, p.id {direction}
  limit :limit
)
"""  # noqa: S608  own texts only

    @property
    def _everything(self) -> str:
        return f"""
matching as materialized (
  select d.id as id, {self.kind} as kind, d.function_id as function_id, {self.gb_id} as gb_id
  from {self.table} as d
)
"""  # noqa: S608  own texts only

    @property
    def _kinds_sql(self) -> str:
        return f"""
select
  0 as is_listed, 0 as id, {", ".join(f"0 as {name}" for name in self.counts)}, 0 as run_count,
  0 as {self.time},
  0 as first_us, 0 as last_us,
  m.kind as kind, argMinIf(tuple(m.gb_id), m.id, m.is_seen).1 as gb_id,
  countIf(m.is_seen) as distinct_count,
  uniqExactIf(m.function_id, m.is_seen) as function_count, grouping(m.kind) as is_of_all
from (
  select kind, gb_id, id, function_id, id in (select id from summed) as is_seen
  from matching
) as m
group by grouping sets ((m.kind), ())
"""  # noqa: S608 - our own names

    @staticmethod
    def limits_months_sql(selected: Any) -> str:
        return f"""
with {WANTED_PUBS}{months_sql(selected.runs)}
select id, recompile_limit_count
from ({per_thing_sql(_FUNCTION_COUNTS, selected.runs, "{key} $in(:function_ids)")})
"""  # noqa: S608 - our own names

    @property
    def slots_sql(self) -> str:
        partial = "sum(b.partial_count)" if "partial_count" in self.counts else "0"
        return f"""
with {WANTED_SLOTS}
select
  w.slot, b.{self.key}, sum(b.{self.count}), {partial} as partial_count,
  sum(b.{self.time}), count(*),
  min(w.started_us), max(w.started_us)
from wanted as w
$join {self.run_table} as b on b.run_id = w.id
where w.slot $in(:slots)
group by w.slot, b.{self.key}
order by w.slot, b.{self.key}
limit 2000000
"""  # noqa: S608 - our own names

    @property
    def slot_runs_sql(self) -> str:
        return f"""
with {WANTED_SLOTS}
select w.slot, count(*) as run_count
from wanted as w
where w.slot $in(:slots)
  and exists (select 1 from {self.run_table} as b where b.run_id = w.id)
group by w.slot
order by w.slot
limit 48
"""  # noqa: S608 - our own names

    @property
    def details_sql(self) -> str:
        return f"""
select d.id, d.fingerprint, {self.columns}, f.name as function, f.file, d.function_id
from {self.table} as d
left join (
  select *
  from functions
  where id in (select function_id from {self.table} where id $in(:ids))
) as f on f.id = d.function_id
where d.id $in(:ids)
order by d.id
limit 2000
"""  # noqa: S608 - our own names

    @property
    def last_runs_sql(self) -> str:
        return f"""
select b.{self.key} as id, r.started_us as started_us, max(r.id) as run_id
from runs as r
join $stored({self.run_table}) as b on $of(b, r)
where r.started_us $in(:starts)
  and b.{self.key} $in(:ids)
group by b.{self.key}, r.started_us
order by id, started_us
limit 100000
"""  # noqa: S608 - our own names

    @property
    def things_sql(self) -> str:
        return f"""
select d.id, {self.kind} as kind, d.function_id, {self.gb_id} as gb_id
from {self.table} as d
where d.id $in(:ids)
order by d.id
limit 200000
"""  # noqa: S608 - our own names

    def is_narrowed(self, selected: Any) -> bool:
        names = (*self.exact, "text", "function", *(["issue_ids"] * self.has_statuses))
        return any(getattr(selected, name) is not None for name in names)

    def kinds_sql(self, selected: Any) -> str:
        return f"""
with {self.matching_sql(selected)}
select id, kind, function_id, gb_id
from matching
order by id
limit 200000
"""  # noqa: S608 - our own names

    def scope_sql(self, selected: Any) -> str:
        return f"""
with {WANTED}, {self.matching_sql(selected)}
select
  (
    select count(*)
    from wanted as w
    where exists (
      select 1
      from {self.run_table} as b
      where b.run_id = w.id
        and b.{self.key} + 0 in (select id
          from matching) -- + 0: walk the run's reasons, seek none of them
    )
  ) as run_count{_ALL_LIMITS if self.has_limits else ""}
"""  # noqa: S608 - our own names

    def kind_slots_sql(self, selected: Any) -> str:
        """Return the SQL of each kind's totals per slot.

        Columns: `kind`, `slot`, `count`, `partial_count`, `duration_us`, `run_count`, `is_of_all`,
        `limit_count`.
        """
        partial = "sum(b.partial_count)" if "partial_count" in self.counts else "0"
        sums = f"""
  w.slot as slot, sum(b.{self.count}) as count, {partial} as partial_count,
  sum(b.{self.time}) as duration_us"""
        limit_count = f"{_LIMITS_OF_WANTED if self.has_limits else '0'} as limit_count"
        if self.is_narrowed(selected):  # reads the rows once, and counts runs too
            return f"""
with {WANTED_SLOT_PUBS}, {self.matching_sql(selected)}
select m.kind as kind, {sums}, uniqExact(b.pub) as run_count, grouping(kind) as is_of_all,
{limit_count}
from (
  select *
  from {self.run_table}_rows
  where {self.key} in (select id from matching)
) as b
join wanted as w on w.pub = b.pub
join matching as m on m.id = b.{self.key}
group by grouping sets ((kind, slot), ())
"""  # noqa: S608 - our own names
        return f"""
with {WANTED_SLOT_PUBS}
select b.kind as kind, {sums}, 0 as run_count, 0 as is_of_all, 0 as limit_count
from {self.sums.kinds} as b
join wanted as w on w.pub = b.pub
group by kind, slot
union all
select
  '', 0, 0, 0, 0, (select uniqExact(pub) from {self.sums.kinds} where pub in (select pub
    from wanted)), 1, {limit_count}
"""  # noqa: S608 - our own names

    def lines_sql(self, selected: Any, are_shown: bool) -> str:
        of = "$in(:shown)" if are_shown else "in (select id from matching)"
        return f"""
with {WANTED_SLOT_PUBS}{"" if are_shown else f", {self.matching_sql(selected)}"}
select b.{self.key} as id, w.slot as slot, sum(b.{self.count}) as count
from (
  select *
  from {self.run_table}_rows
  where {self.key} {of}
) as b
join wanted as w on w.pub = b.pub
group by id, slot
limit 10000000
"""  # noqa: S608 - our own names

    @property
    def _no_trial(self) -> str:
        """Return the condition that leaves out trials if another run has the reason too."""
        return f"""(
    r.source <> 'trial' or (
      select count(*)
      from $stored({self.run_table}) as o
      join runs as q on $of(o, q)
      where o.{self.key} = :id
        and q.source <> 'trial'
    ) = 0
  )"""  # noqa: S608 - our own names

    @property
    def get_sql(self) -> str:
        return f"""
with summed as (
  select
    b.{self.key} as id, {", ".join(f"sum(b.{name}) as {name}" for name in self.counts)},
    count(*) as run_count,
    sum(b.{self.time}) as {self.time}, min(r.started_us) as first_us, max(r.started_us) as last_us
  from {self.run_table} as b
  join runs as r on r.id = b.run_id
  where b.{self.key} = :id
    and {self._no_trial}
  group by b.{self.key}
)
select
  d.id, d.fingerprint, {self.columns}, f.name as function, f.file,
  {", ".join(f"s.{name}" for name in self.counts)},
  s.run_count, {recorded_us_sql(f"s.{self.time}", f"s.{self.count}")} as {self.time}, s.first_us,
  s.last_us
  {_FUNCTION_LIMITS if self.has_limits else ""}
from summed as s
join {self.table} as d on d.id = s.id
left join functions as f on f.id = d.function_id
limit 1
"""  # noqa: S608 - our own names

    @property
    def runs_sql(self) -> str:
        return f"""
select
  r.id, r.name, $a.title, r.suite, r.source, {SHOWN_STATE} as state, r.started_us, r.torch_version,
  r.host,
  r.git_commit,
  case when $t.result_count > 0 then r.git_subject end as git_subject,
  b.{self.count} as count, {recorded_us_sql(f"b.{self.time}", f"b.{self.count}")} as duration_us,
  coalesce($a.pinned, 0) as pinned
from runs as r
join $stored({self.run_table}) as b on $of(b, r)
$totals
$words
where b.{self.key} = :id
  and {self._no_trial}
  and (:after_us is null or (r.started_us, r.id) < (:after_us, :after_id))
order by r.started_us desc, r.id desc
limit :limit
"""  # noqa: S608 - our own names


@dataclass(frozen=True)
class ReasonTrends:
    summary: Any
    grid: TrendGrid
    slots: Sequence[TrendSlot]

    @property
    def run_count(self) -> int:
        return sum(slot.run_count for slot in self.slots)


@dataclass(frozen=True)
class AffectedRun:
    """One run with its number of occurrences."""

    tables = ("runs", "run_annotations")

    id: RunId
    name: str
    title: Title
    suite: str | None
    source: str
    state: Annotated[str, "State of the run."]
    started_us: StartTime
    torch_version: str | None
    host: str | None
    git_commit: str | None
    git_subject: str | None
    count: Annotated[Count, "Occurrences in this run."]
    duration_us: TimeOfReasons
    pinned: bool

    @property
    def shown_name(self) -> str:
        return self.title or self.git_subject or self.name


@dataclass(frozen=True)
class HistoryPoint:
    """One run, among runs of the same suite and name."""

    run_id: RunId
    name: Annotated[str, "The run's name."]
    title: Title
    started_us: StartTime
    count: Annotated[Count, "Occurrences, 0 without one."]


def list_reasons(
    engine: Engine,
    subject: ReasonSubject,
    selected: Any,
    *,
    sort: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Any]:
    """List reasons; `sort` is one of the subject's orders, largest first, or that name with ".asc".

    Raises FilterError for an invalid sort or cursor.
    """
    order, direction = check_order(sort or subject.default_order, subject.orders)
    after = decode_cursor(cursor, int, int)
    if engine.dialect == "sqlite":
        reasons = _list_summed(
            engine, subject, selected, subject.orders[order], direction == "asc", after, limit + 1
        )
        return _make_page(reasons, subject, order, limit)
    ordering = ReasonOrder(subject.orders[order], direction == "asc", after is not None)
    values = _bind_order(subject, selected, after, limit)
    rows = engine.rows(subject.totals_sql(selected, ordering), values)
    return _make_page(
        _list_monthly(engine, subject, selected, ordering, rows), subject, order, limit
    )


def list_with_trends(
    engine: Engine,
    subject: ReasonSubject,
    selected: Any,
    *,
    sort: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> tuple[Page[Any], ReasonTrends]:
    """Return reasons, and the trends of all of them. Raises FilterError as `list_reasons` does."""
    if engine.dialect == "sqlite":
        listed = list_reasons(engine, subject, selected, sort=sort, cursor=cursor, limit=limit)
        return listed, get_reason_trends(
            engine, subject, selected, [reason.id for reason in listed.rows]
        )
    order, direction = check_order(sort or subject.default_order, subject.orders)
    after = decode_cursor(cursor, int, int)
    ordering = ReasonOrder(subject.orders[order], direction == "asc", after is not None)
    values = _bind_order(subject, selected, after, limit)
    reasons, trends = _monthly_trend(engine, subject, selected, values, ordering)
    return _make_page(reasons, subject, order, limit), trends


def _bind_order(
    subject: ReasonSubject, selected: Any, after: tuple[Any, ...] | None, limit: int
) -> dict[str, Any]:
    after_key, after_id = after or (None, None)
    values = subject.bind(selected) | bind_months(selected.runs)
    return values | {"limit": limit + 1, "after_key": after_key, "after_id": after_id}


def _list_monthly(
    engine: Engine,
    subject: ReasonSubject,
    selected: Any,
    ordering: ReasonOrder,
    rows: Iterable[Row],
) -> list[Any]:
    names = ("id", *subject.counts, "run_count", subject.time, "first_us", "last_us")
    sums = [{name: row[name] for name in names} for row in rows if row["is_listed"]]
    sums.sort(
        key=ordering.sort_key, reverse=not ordering.is_up
    )  # a run may be published in between
    details = {
        row["id"]: dict(row)
        for row in engine.rows(subject.details_sql, {"ids": [row["id"] for row in sums]})
    }
    function_ids = sorted(
        {row["function_id"] for row in details.values() if row["function_id"] is not None}
    )
    limits: dict[int, int] = {}
    if subject.has_limits and function_ids:
        values = (
            subject.bind(selected) | bind_months(selected.runs) | {"function_ids": function_ids}
        )
        limits = {
            row[0]: row[1] for row in engine.rows(subject.limits_months_sql(selected), values)
        }
    reasons = []
    for row in sums:
        if (
            row["id"] not in details
        ):  # the statements see different states: the board may be emptied in between
            continue
        row = details[row["id"]] | row
        row[subject.time] = row[subject.time] or (None if row[subject.count] else 0)
        function_id = row.pop("function_id")
        if subject.has_limits:
            row["limit_count"] = limits.get(function_id, 0)
        reasons.append(make_row(subject.reason, row))
    return reasons


def _make_page(reasons: list[Any], subject: ReasonSubject, order: str, limit: int) -> Page[Any]:
    return make_page(
        reasons,
        limit,
        lambda reason: (getattr(reason, subject.orders[order]) or 0, parse_id(reason.id)),
    )


def _list_summed(
    engine: Engine,
    subject: ReasonSubject,
    selected: Any,
    key: str,
    up: bool,
    after: tuple[Any, ...] | None,
    limit: int,
) -> list[Any]:
    sums = _sum_up(engine, subject, selected)
    totals = sums.totals
    if subject.is_narrowed(selected):
        totals = {key: totals[key] for key in _find_matching(engine, subject, selected, sums)}
    renamed = {subject.count: "event_count", subject.time: "duration_us"}
    column = ReasonSum._fields.index(renamed.get(key, key))
    ranked = ((total[column], reason_id) for reason_id, total in totals.items())
    if after:
        ranked = (
            (rank, of) for rank, of in ranked if ((rank, of) > after if up else (rank, of) < after)
        )
    chosen = [reason_id for _rank, reason_id in (nsmallest if up else nlargest)(limit, ranked)]
    details = {row["id"]: dict(row) for row in engine.rows(subject.details_sql, {"ids": chosen})}
    reasons = []
    for reason_id in chosen:
        total, row = totals[reason_id], details[reason_id]
        function_id = row.pop("function_id")
        row |= total._asdict()
        row[subject.count] = row.pop("event_count")
        row[subject.time] = row.pop("duration_us") or (None if total.event_count else 0)
        if not subject.has_limits:
            del row["partial_count"]
        else:
            row["limit_count"] = 0 if function_id is None else sums.limits.get(function_id, 0)
        reasons.append(make_row(subject.reason, row))
    return reasons


def _find_matching(
    engine: Engine, subject: ReasonSubject, selected: Any, sums: ReasonSums
) -> dict[int, tuple[Any, ...]]:
    """Return kind, function and GB id of each reason that a filter selects.

    The last filter's are kept with the sums: a page needs them for its list and its trends.
    """
    values = subject.bind(selected)
    matching: dict[int, tuple[Any, ...]]
    known_values, matching = sums.made.get("matching", (None, {}))
    if known_values != values:
        rows = engine.stream(subject.kinds_sql(selected), values)
        matching = {row[0]: row[1:] for row in rows if row[0] in sums.totals}
        sums.made["matching"] = values, matching
    return matching


def _sum_up(engine: Engine, subject: ReasonSubject, selected: Any) -> ReasonSums:
    def read_slots(values: Mapping[str, Any]) -> dict[int, tuple[Any, ...]]:
        slots: dict[int, tuple[dict[int, ReasonSum], int, dict[int | None, int]]]
        run_counts = {row[0]: row[1] for row in engine.rows(subject.slot_runs_sql, values)}
        slots = {number: ({}, run_counts.get(number, 0), {}) for number in values["slots"]}
        for slot, reason_id, *sums in engine.stream(subject.slots_sql, values):
            slots[slot][0][reason_id] = ReasonSum(*sums)
        for slot, function_id, count in (
            engine.rows(SLOT_LIMITS_SQL, values) if subject.has_limits else ()
        ):
            slots[slot][2][function_id] = count
        return slots

    return sum_reasons(engine, subject.table, selected.runs, read_slots)


def get_reason_trends(
    engine: Engine,
    subject: ReasonSubject,
    selected: Any,
    shown: Iterable[str] | None = None,
) -> ReasonTrends:
    shown_ids = None if shown is None else [parse_id(reason_id) for reason_id in shown]
    if engine.dialect == "sqlite":
        trends = _summed_trend(engine, subject, selected)
        if shown_ids is None:
            return trends
        known = trends.grid.counts
        counts = {reason_id: known[reason_id] for reason_id in shown_ids if reason_id in known}
        return replace(trends, grid=replace(trends.grid, counts=counts))
    values = subject.bind(selected) | bind_months(selected.runs)
    return _monthly_trend(engine, subject, selected, values, None, shown_ids)[1]


def _monthly_trend(
    engine: Engine,
    subject: ReasonSubject,
    selected: Any,
    values: Mapping[str, Any],
    ordering: ReasonOrder | None,
    shown_ids: list[int] | None = None,
) -> tuple[list[Any], ReasonTrends]:
    slots = list_slots(engine, selected.runs)
    of_slots = subject.bind(selected) | bind_slots(selected.runs, slots)
    # Independent statements run concurrently: planning and small steps use one processor.
    with ThreadPoolExecutor(1) as beside:
        kind_slots_read = beside.submit(engine.rows, subject.kind_slots_sql(selected), of_slots)
        rows = engine.rows(subject.totals_sql(selected, ordering, with_kinds=True), values)
        reasons = _list_monthly(engine, subject, selected, ordering, rows) if ordering else []
        if ordering:
            listed = reasons[: values["limit"] - 1]  # one more shows that there is a next page
            shown_ids = [parse_id(reason.id) for reason in listed]
        lines_sql = subject.lines_sql(selected, shown_ids is not None)
        lines = (
            list(engine.stream(lines_sql, of_slots | {"shown": shown_ids or []})) if slots else []
        )
        kind_slots = kind_slots_read.result()
    of_all = next(row for row in kind_slots if row["is_of_all"])
    scope = {
        name: of_all[name]
        for name in ("run_count", *(("limit_count",) if subject.has_limits else ()))
    }
    grid = read_grid([row for row in rows if not row["is_listed"]], kind_slots, lines, slots)
    return reasons, ReasonTrends(subject.summarize(grid, scope), grid, slots)


def _summed_trend(engine: Engine, subject: ReasonSubject, selected: Any) -> ReasonTrends:
    sums = _sum_up(engine, subject, selected)
    totals = sums.totals
    is_narrowed = subject.is_narrowed(selected)
    if not is_narrowed and "trends" in sums.made:
        made: ReasonTrends = sums.made["trends"]
        return made
    if is_narrowed:
        values = subject.bind(selected)
        things = _find_matching(engine, subject, selected, sums)
        scope = dict(engine.rows(subject.scope_sql(selected), values)[0])
    else:
        things = sums.things
        if missing := [reason_id for reason_id in totals if reason_id not in things]:
            things |= {
                row[0]: row[1:] for row in engine.stream(subject.things_sql, {"ids": missing})
            }
        things = {reason_id: things[reason_id] for reason_id in totals}
        scope = {"run_count": sums.run_count}
        scope |= {"limit_count": sums.limits.get(None, 0)} if subject.has_limits else {}
    kinds: dict[str, KindSums] = {}
    for reason_id, (kind, function_id, gb_id) in sorted(things.items()):
        of_kind = kinds.get(kind)
        if of_kind is None:
            of_kind = kinds[kind] = KindSums(gb_id, [0] * len(sums.slots))
        of_kind.add(function_id, totals[reason_id], sums.counts[reason_id])
    counts = {reason_id: sums.counts[reason_id] for reason_id in things}
    grid = make_grid(counts, kinds, sums.slots)
    trends = ReasonTrends(subject.summarize(grid, scope), grid, sums.slots)
    if not is_narrowed:
        sums.made["trends"] = trends
    return trends


def get_reason(engine: Engine, subject: ReasonSubject, reason_id: int) -> Any:
    values = {"id": reason_id}
    if engine.dialect == "clickhouse":
        ordering = ReasonOrder(subject.count)
        for runs in (RunFilter(), RunFilter(trials=True)):  # as `_no_trial`
            every = subject.filter(runs=runs)
            sql = subject.totals_sql(every, ordering, only="{key} = :id")
            rows = engine.rows(sql, values | _bind_order(subject, every, None, 1))
            for reason in _list_monthly(engine, subject, every, ordering, rows):
                return reason
        return None
    row = get_row(engine, subject.get_sql, values)
    return make_row(subject.reason, row) if row else None


def list_affected_runs(
    engine: Engine,
    subject: ReasonSubject,
    reason_id: int,
    *,
    cursor: str | None = None,
    limit: int = 50,
    alive_since_us: int = 0,
) -> Page[AffectedRun]:
    """List the runs that have a reason, newest first. Raises FilterError for an invalid cursor."""
    after = decode_cursor(cursor, int, str) or (None, None)
    values = {"id": reason_id, "after_us": after[0], "after_id": after[1], "limit": limit + 1}
    rows = engine.rows(subject.runs_sql, values | {"alive_since_us": alive_since_us})
    runs = [make_row(AffectedRun, row) for row in rows]
    return make_page(runs, limit, lambda run: (run.started_us, run.id))


def find_last_runs(
    engine: Engine, subject: ReasonSubject, reasons: Iterable[Any]
) -> dict[str, str]:
    """Return the id of the last run of each reason, by the reason's id."""
    last_us = {parse_id(reason.id): reason.last_us for reason in reasons}
    values = {"ids": [*last_us], "starts": sorted({*last_us.values()})}
    rows = engine.rows(subject.last_runs_sql, values)
    return {
        format_id(reason_id): run_id
        for reason_id, started_us, run_id in rows
        if last_us[reason_id] == started_us
    }


def history_sql(run_table: str, key: str, count: str) -> str:
    """Return the SQL of a reason's counts by run. Runs without the reason count as 0, so that a
    trend shows when it disappeared.
    """
    return f"""
with series as materialized (
  select distinct r.suite, r.name
  from $stored({run_table}) as b
  join runs as r on $of(b, r)
  where b.{key} = :id
), newest as materialized (
  select r.id as id, $pub(r) as pub, r.name as name, $a.title as title, r.started_us as started_us
  from series as s
  $join runs as r on r.suite $is s.suite and r.name = s.name and r.source <> 'trial'
  $words
  order by r.started_us desc, r.id desc
  limit :newest
)
select n.id as run_id, n.name, n.title, n.started_us, coalesce(b.{count}, 0) as count
from newest as n
left join $stored({run_table}) as b on $of(b, n) and b.{key} = :id
order by n.started_us desc, n.id desc
limit :newest
"""  # noqa: S608 - our own names


def list_history(
    engine: Engine, subject: ReasonSubject, reason_id: int, *, run_count: int = 200
) -> list[HistoryPoint]:
    sql = history_sql(subject.run_table, subject.key, subject.count)
    return list_points(engine, sql, {"id": reason_id, "newest": run_count})


def list_points(engine: Engine, sql: str, values: Mapping[str, Any]) -> list[HistoryPoint]:
    return [HistoryPoint(**dict(row)) for row in reversed(engine.rows(sql, values))]
