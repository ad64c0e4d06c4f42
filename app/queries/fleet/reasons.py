"""Reasons across runs: how often each came, where, since when, at what cost; and one of them.

A reason is why graphs broke (a distinct graph break) or why functions were compiled again (a cause of recompiles).
`ReasonSubject` says what differs between the two; graph_breaks and recompiles beside this module each make one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Protocol, TypeVar

from compileboard.app.queries.engine import Engine, get_row
from compileboard.app.queries.fields import CompilesUs, Count, DurationUs, RunId, StartTime, Title, name_ids
from compileboard.app.queries.fleet.runs import (
    WANTED,
    WANTED_SLOTS,
    RunFilter,
    Slot,
    bind_runs,
    bind_slots,
    list_slots,
)
from compileboard.app.queries.newest import SHOWN_STATE
from compileboard.app.queries.page import Page, check_order, decode_cursor, make_page, recorded_us
from compileboard.app.queries.parameters import list_names, read_query
from compileboard.app.schema import one_of
from compileboard.collectors.contract.fingerprints import format_id, parse_id

_LIMITS = """
limits as materialized (
  select u.function_id, sum(u.recompile_limit_count) as limit_count
  from wanted as w
  $join run_functions as u on u.run_id = w.id
  where u.recompile_limit_count > 0
  group by u.function_id
)
"""
_ALL_LIMITS = """,
  (
    select coalesce(sum(t.recompile_limit_count), 0)
    from wanted as w
    $join run_totals as t on t.run_id = w.id
  ) as limit_count
"""
_FUNCTION_LIMITS = """,
  (
    select coalesce(sum(u.recompile_limit_count), 0)
    from recompile_causes as c
    join run_functions as u on u.function_id = c.function_id
    where c.id = :id
  ) as limit_count
"""


class ReasonFilter(Protocol):
    """Which reasons, in which runs; the other fields of a filter are columns that `ReasonSubject.exact` names."""

    @property
    def runs(self) -> RunFilter: ...
    @property
    def text(self) -> str | None: ...


class AnyReason(Protocol):
    """What every reason has; its counts have the names that `ReasonSubject.counts` has."""

    @property
    def id(self) -> str: ...


Selection = TypeVar("Selection", bound=ReasonFilter)
Reason = TypeVar("Reason", bound=AnyReason)
Summary = TypeVar("Summary")
Event = TypeVar("Event")


@dataclass(frozen=True)
class ReasonSubject(Generic[Selection, Reason, Summary, Event]):
    """Where the database has the reasons of graph breaks, or those of recompiles, and as what they are read.

    In SQL `d` is a reason, `f` its function, `b` what it came to in a run and `e` one of its events.
    """

    noun: str  # of one, as a sentence that does not find it says
    table: str  # a row a reason
    run_table: str  # a row a run and reason
    key: str  # the reason in run_table
    counts: tuple[str, ...]  # columns of run_table that are summed; the first is how often it came
    columns: str  # columns of `table` that a reason has, beside its id, fingerprint and function
    kind: str
    exact: Mapping[str, str]  # fields of the filter, and what has to be the same as they
    texts: Sequence[str]  # where the filter's text is looked for, beside the function
    orders: Mapping[str, str]  # what a list may be ordered by, the first if nothing is said; each is never null
    events_sql: str
    events_of_newest: str  # joins the events of one reason to the runs `newest`
    filter: type[Selection]
    make_reason: Callable[[dict[str, Any]], Reason]
    summarize: Callable[[TrendGrid, Mapping[str, int]], Summary]
    event: type[Event]
    gb_id: str = "null"
    has_limits: bool = False  # whether the compiles of its function that hit the recompile limit stand beside a reason

    @property
    def count(self) -> str:
        """Return the column that says how often a reason came."""
        return self.counts[0]

    def describe_absence(self, text: str) -> str:
        """Return that there is no reason of the number in an address."""
        return f"There is no {self.noun} {text[:40]}; its runs may have been deleted."

    @property
    def default_order(self) -> str:
        """Return the order of a list if nothing is said."""
        return next(iter(self.orders))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the parameters that filter a list."""
        return list_names(self.filter)

    def read_filter(self, query: Mapping[str, str]) -> Selection:
        """Turn an address's query into a filter, the same for the page and the API.

        Raises: FilterError if a key is unknown or a value cannot be used.
        """
        return read_query(self.filter, query)

    def bind(self, selected: Selection) -> dict[str, Any]:
        """Make the values of a filter; the runs' filter has :text and :name of its own."""
        own = {name: getattr(selected, name) for name in (*self.exact, "function")}
        return bind_runs(selected.runs) | own | {"reason_text": selected.text}

    @property
    def matching(self) -> str:
        """Return the reasons that a filter lets through, as a common table expression."""
        location = "coalesce(f.file, '') || ':' || coalesce(f.name, '')"
        exact = "".join(f"and (:{name} is null or {column} = :{name})\n    " for name, column in self.exact.items())
        texts = (f"instr(lower(coalesce({text}, '')), lower(:reason_text))" for text in self.texts)
        return f"""
matching as materialized (
  select d.id, {self.kind} as kind, d.function_id, {self.gb_id} as gb_id
  from {self.table} as d
  left join functions as f on f.id = d.function_id
  where (:function is null or instr(lower({location}), lower(:function)))
    {exact}and (:reason_text is null or {" or ".join(texts)} or instr(lower({location}), lower(:reason_text)))
)
"""  # noqa: S608  own texts only

    def list_sql(self, order: str, up: bool, after: bool) -> str:
        """Write the list's statement for one order."""
        key, direction, sign = self.orders[order], "asc" if up else "desc", ">" if up else "<"
        counts = ", ".join(f"p.{name}" for name in self.counts)
        behind = f"where (p.{key}, p.id) {sign} (:after_key, :after_id)" if after else ""
        return f"""
with {WANTED}, {self.matching}, {f"{_LIMITS}, " if self.has_limits else ""}per_reason as materialized (
  select
    b.{self.key} as id, {", ".join(f"sum(b.{name}) as {name}" for name in self.counts)}, count(*) as run_count,
    sum(b.compile_us) as compile_us, min(w.started_us) as first_us, max(w.started_us) as last_us
  from wanted as w
  $join {self.run_table} as b on b.run_id = w.id
  group by b.{self.key}
), page as materialized (
  select p.id, {counts}, p.run_count, p.compile_us, p.first_us, p.last_us
  from per_reason as p
  join matching as m on m.id = p.id
  {behind}
  order by p.{key} {direction}, p.id {direction}
  limit :limit
)
select
  p.id, d.fingerprint, {self.columns}, f.name as function, f.file, {counts},
  p.run_count, {recorded_us("p.compile_us", f"p.{self.count}")} as compile_us, p.first_us, p.last_us
  {", coalesce(l.limit_count, 0) as limit_count" if self.has_limits else ""}
from page as p
join {self.table} as d on d.id = p.id
left join functions as f on f.id = d.function_id
{"left join limits as l on l.function_id = d.function_id" if self.has_limits else ""}
order by p.{key} {direction}, p.id {direction}
limit :limit
"""  # noqa: S608

    @property
    def cells_sql(self) -> str:
        """Write the statement for what every reason came to in every run."""
        guard_failures = "b.guard_failure_count" if "guard_failure_count" in self.counts else "0"
        return f"""
with {WANTED_SLOTS}
select b.{self.key}, w.slot, b.{self.count}, {guard_failures} as guard_failure_count, b.compile_us
from wanted as w
$join {self.run_table} as b on b.run_id = w.id
limit 2000000
"""  # noqa: S608

    @property
    def kinds_sql(self) -> str:
        """Write the statement for the kind and the function of every reason."""
        return f"""
with {self.matching}
select id, kind, function_id, gb_id
from matching
order by id
limit 200000
"""  # noqa: S608

    @property
    def scope_sql(self) -> str:
        """Write the statement for how many runs have any of them."""
        return f"""
with {WANTED}, {self.matching}
select
  (
    select count(*)
    from wanted as w
    where exists (
      select 1
      from {self.run_table} as b
      where b.run_id = w.id
        and b.{self.key} + 0 in (select id from matching) -- + 0: walk the run's reasons, seek none of them
    )
  ) as run_count{_ALL_LIMITS if self.has_limits else ""}
"""  # noqa: S608

    @property
    def get_sql(self) -> str:
        """Write the statement for one reason over all runs."""
        return f"""
with summed as (
  select
    b.{self.key} as id, {", ".join(f"sum(b.{name}) as {name}" for name in self.counts)}, count(*) as run_count,
    sum(b.compile_us) as compile_us, min(r.started_us) as first_us, max(r.started_us) as last_us
  from {self.run_table} as b
  join runs as r on r.id = b.run_id
  where b.{self.key} = :id
  group by b.{self.key}
)
select
  d.id, d.fingerprint, {self.columns}, f.name as function, f.file, {", ".join(f"s.{name}" for name in self.counts)},
  s.run_count, {recorded_us("s.compile_us", f"s.{self.count}")} as compile_us, s.first_us, s.last_us
  {_FUNCTION_LIMITS if self.has_limits else ""}
from summed as s
join {self.table} as d on d.id = s.id
left join functions as f on f.id = d.function_id
limit 1
"""  # noqa: S608

    @property
    def runs_sql(self) -> str:
        """Write the statement for the runs that have one reason."""
        return f"""
select
  r.id, r.name, a.title, r.suite, r.source, {SHOWN_STATE} as state, r.started_us, r.torch_version, r.host, r.git_commit,
  case when t.result_count then r.git_subject end as git_subject,
  b.{self.count} as count, {recorded_us("b.compile_us", f"b.{self.count}")} as compile_us,
  coalesce(a.pinned, 0) as pinned
from {self.run_table} as b
join runs as r on r.id = b.run_id
left join run_totals as t on t.run_id = r.id
left join run_annotations as a on a.run_id = r.id
where b.{self.key} = :id
  and (:after_us is null or (r.started_us, r.id) < (:after_us, :after_id))
order by r.started_us desc, r.id desc
limit :limit
"""  # noqa: S608


AnySubject = ReasonSubject[Any, Any, Any, Any]


TrendLine = Annotated[list[float], "Mean count a run, one number for each of `slots`."]


@dataclass(frozen=True)
class KindTrend:
    """Totals of one type."""

    kind: Annotated[str, "The kind."]
    gb_id: Annotated[str | None, "torch's id, for graph breaks."]
    distinct_count: Annotated[Count, "Distinct things."]
    function_count: Annotated[Count, "Functions."]
    count: Annotated[Count, "Count."]
    guard_failure_count: Annotated[Count, "Failed cache entries, for recompiles."]
    compile_us: Annotated[DurationUs | None, "Time of the compiles."]
    trend: TrendLine


@dataclass(frozen=True)
class TrendGrid:
    """Counts of each distinct thing in each slot, by id, and of each kind of thing, most frequent first."""

    counts: Mapping[int, list[int]]
    slots: Sequence[Slot]
    kinds: tuple[KindTrend, ...]
    function_count: int

    def line(self, thing: str) -> list[float]:
        """Return a thing's mean count a run, slot by slot; empty if it is not among them."""
        return _per_run(self.counts.get(parse_id(thing), ()), self.slots)

    @property
    def lines(self) -> dict[str, list[float]]:
        """Return every thing's line; a page asks for those it shows."""
        return {format_id(thing): _per_run(counts, self.slots) for thing, counts in self.counts.items()}


@dataclass(frozen=True)
class ReasonTrends(Generic[Summary]):
    """What the reasons of a filter come to over runs, which are divided into slots."""

    summary: Summary
    grid: TrendGrid
    slots: Sequence[Slot]

    @property
    def run_count(self) -> int:
        """Return how many runs were looked at, whether they have any or not."""
        return sum(slot.run_count for slot in self.slots)


@dataclass(frozen=True)
class AffectedRun:
    """One run with its number of occurrences."""

    id: RunId
    name: Annotated[str, "Its name."]
    title: Title
    suite: Annotated[str | None, "Its suite."]
    source: Annotated[str, one_of(("live", "import", "bench", "trial")), "How it was recorded; `trial` is one of try."]
    state: Annotated[str, "Its state."]
    started_us: StartTime
    torch_version: Annotated[str | None, "Version of torch."]
    host: Annotated[str | None, "Machine."]
    git_commit: Annotated[str | None, "Commit."]
    git_subject: Annotated[str | None, "Subject of a benchmark's commit."]
    count: Annotated[Count, "Occurrences in this run."]
    compile_us: CompilesUs
    pinned: Annotated[bool, "Whether a person pinned the run."]

    @property
    def shown_name(self) -> str:
        """Return what a person called the run; else a benchmark's commit by its subject, else the run's own name."""
        return self.title or self.git_subject or self.name


@dataclass(frozen=True)
class HistoryPoint:
    """One run of the same suite and name."""

    run_id: RunId
    name: Annotated[str, "The run's name."]
    title: Title
    started_us: StartTime
    count: Annotated[Count, "Occurrences, 0 without one."]


def list_reasons(
    engine: Engine,
    subject: ReasonSubject[Selection, Reason, Any, Any],
    selected: Selection,
    *,
    sort: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Reason]:
    """List reasons; `sort` is one of the subject's orders, largest first, or that name with ".asc".

    Raises: FilterError if the sort or the cursor cannot be used.
    """
    order, direction = check_order(sort or subject.default_order, subject.orders)
    after = decode_cursor(cursor, int, int)
    values = subject.bind(selected) | {"limit": limit + 1}
    if after:
        values |= {"after_key": after[0], "after_id": after[1]}
    rows = engine.rows(subject.list_sql(order, direction == "asc", after is not None), values)
    reasons = [subject.make_reason(name_ids(row, "id")) for row in rows]
    return make_page(reasons, limit, lambda reason: (getattr(reason, subject.orders[order]) or 0, parse_id(reason.id)))


def get_reason_trends(
    engine: Engine, subject: ReasonSubject[Selection, Any, Summary, Any], selected: Selection
) -> ReasonTrends[Summary]:
    """Sum over all reasons of a filter, and draw the trend of each and of each kind."""
    slots = list_slots(engine, selected.runs)
    values = subject.bind(selected)
    scope = dict(engine.rows(subject.scope_sql, values)[0])
    values |= bind_slots(selected.runs, slots)
    grid = add_up(engine, subject.cells_sql, subject.kinds_sql, values, slots)
    return ReasonTrends(subject.summarize(grid, scope), grid, slots)


def get_reason(engine: Engine, subject: ReasonSubject[Any, Reason, Any, Any], reason_id: int) -> Reason | None:
    """Return one reason over all runs, or None if no run has it."""
    row = get_row(engine, subject.get_sql, {"id": reason_id})
    return subject.make_reason(name_ids(row, "id")) if row else None


def list_affected_runs(
    engine: Engine,
    subject: AnySubject,
    reason_id: int,
    *,
    cursor: str | None = None,
    limit: int = 50,
    alive_since_us: int = 0,
) -> Page[AffectedRun]:
    """List the runs that have a reason, newest first.

    Raises: FilterError if the cursor cannot be used.
    """
    after = decode_cursor(cursor, int, str) or (None, None)
    values = {"id": reason_id, "after_us": after[0], "after_id": after[1], "limit": limit + 1}
    rows = engine.rows(subject.runs_sql, values | {"alive_since_us": alive_since_us})
    runs = [AffectedRun(**(dict(row) | {"pinned": bool(row["pinned"])})) for row in rows]
    return make_page(runs, limit, lambda run: (run.started_us, run.id))


def history_sql(run_table: str, key: str, count: str) -> str:
    """Write the statement for how often something came in the runs of the suites and names that have it.

    The runs that do not have it count as 0: that is how one sees that it is gone.
    """
    return f"""
with series as materialized (
  select distinct r.suite, r.name
  from {run_table} as b
  join runs as r on r.id = b.run_id
  where b.{key} = :id
)
select r.id as run_id, r.name, a.title, r.started_us, coalesce(b.{count}, 0) as count
from series as s
$join runs as r on r.suite $is s.suite and r.name = s.name and r.source <> 'trial'
left join {run_table} as b on b.run_id = r.id and b.{key} = :id
left join run_annotations as a on a.run_id = r.id
order by r.started_us desc, r.id desc
limit :newest
"""  # noqa: S608


def list_history(engine: Engine, subject: AnySubject, reason_id: int, *, newest: int = 200) -> list[HistoryPoint]:
    """List a point for each of the newest runs of the suites and names that have a reason, oldest first."""
    sql = history_sql(subject.run_table, subject.key, subject.count)
    return list_points(engine, sql, {"id": reason_id, "newest": newest})


def list_points(engine: Engine, sql: str, values: Mapping[str, Any]) -> list[HistoryPoint]:
    """Read the points that a statement lists newest first, oldest first."""
    return [HistoryPoint(**dict(row)) for row in reversed(engine.rows(sql, values))]


def _per_run(counts: Sequence[int], slots: Sequence[Slot]) -> list[float]:
    return [count / slot.run_count for count, slot in zip(counts, slots)]


def add_up(engine: Engine, cells: str, things: str, values: Mapping[str, Any], slots: list[Slot]) -> TrendGrid:
    """Sum cells (id, slot, count, guard failures or 0, compile_us) over things (id, kind, function id, GB id).

    The cells are summed here: they come unsorted, one a run and thing, and grouping them takes SQLite longer.
    """
    last = len(slots) - 1
    kinds: dict[str, _KindSums] = {}
    # By thing: its counts by slot, its kind's, guard failures, compile time, its kind, its function.
    sums: dict[int, list[Any]] = {}
    for thing, kind, function_id, gb_id in engine.stream(things, values):
        if kind not in kinds:
            kinds[kind] = _KindSums(gb_id, [0] * len(slots))
        sums[thing] = [None, kinds[kind].counts, 0, 0, kinds[kind], function_id]
    for thing, slot, count, guard_failure_count, compile_us in engine.stream(cells, values) if slots else ():
        mine = sums.get(thing)
        if mine is None:
            continue
        if mine[0] is None:
            mine[0] = [0] * len(slots)
        if slot > last:
            slot = last  # a run was added since the slots were made
        mine[0][slot] += count
        mine[1][slot] += count
        mine[2] += guard_failure_count
        mine[3] += compile_us
    seen = {thing: mine for thing, mine in sums.items() if mine[0] is not None}
    for _counts, _of_kind, guard_failure_count, compile_us, kind_sums, function_id in seen.values():
        kind_sums.distinct_count += 1
        kind_sums.guard_failure_count += guard_failure_count
        kind_sums.compile_us += compile_us
        kind_sums.functions |= {function_id} - {None}
    trends = [kind_sums.make_trend(kind, slots) for kind, kind_sums in kinds.items() if kind_sums.distinct_count]
    trends.sort(key=lambda trend: (-trend.count, -trend.guard_failure_count, trend.kind))
    function_count = len({function for kind_sums in kinds.values() for function in kind_sums.functions})
    return TrendGrid({thing: mine[0] for thing, mine in seen.items()}, slots, tuple(trends), function_count)


@dataclass
class _KindSums:
    gb_id: str | None
    counts: list[int]
    distinct_count: int = 0
    functions: set[int] = field(default_factory=set)
    guard_failure_count: int = 0
    compile_us: int = 0

    def make_trend(self, kind: str, slots: Sequence[Slot]) -> KindTrend:
        return KindTrend(
            kind=kind,
            gb_id=self.gb_id,
            distinct_count=self.distinct_count,
            function_count=len(self.functions),
            count=sum(self.counts),
            guard_failure_count=self.guard_failure_count,
            compile_us=self.compile_us,
            trend=_per_run(self.counts, slots),
        )
