"""The timeline of a run: threads, the spans of a window that are wide enough to draw, totals by
name, and all spans.

Only LIST_SQL, which the export streams, reads all spans of a run. A window is read depth by depth
from spans_depth if few spans begin in it, and longest first from spans_duration if many do.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from compileboard.app.core.rows import list_rows
from compileboard.app.core.schema import published
from compileboard.collectors.contract.compile_labels import (
    build_label,
    label_function,
    label_line,
    label_role,
)
from compileboard.collectors.store.runs import load_process_names

LANES = 64
DRAWN = 4000  # spans of one window, all lanes together
READ = 20_000  # spans of one window examined for drawing, all lanes together
SCANNED = 100_000  # index entries skipped for the drawn ones
BUCKETS = 240  # columns of a window in which short spans are summed
OPEN = 100  # spans of a lane without an end
_MIN_READ = 1000  # per lane
_NEVER_US = 1 << 62


@dataclass(frozen=True)
class Lane:
    """One thread of one process; `deepest` is the largest number of nested phases.

    `name` distinguishes the process from the run's others and is empty if it is the only one. Times
    are microseconds since the epoch.
    """

    id: int
    process_id: str
    thread: int
    rank: int | None
    pid: int | None
    span_count: int
    first_us: int
    last_us: int
    deepest: int
    name: str = ""


@dataclass(frozen=True)
class Span:
    id: int
    name: str
    compile_key: int | None
    compile_id: str | None
    begin_us: int
    duration_us: int | None
    depth: int


class CompileLabel(NamedTuple):
    compile_id: str
    text: str
    attempt_count: int


@dataclass(frozen=True)
class ShortSpans:
    depth: int
    bucket: int
    span_count: int
    busy_us: int


@dataclass(frozen=True)
class InstantTotal:
    name: str
    first_us: int
    mark_count: int


@dataclass(frozen=True)
class LaneWindow:
    """The drawn part of one thread; parents come before their children.

    `is_coarse` means that the totals lack the shortest phases, because more phases began in the
    window than are read.
    """

    lane_id: int
    spans: Sequence[Span]
    short: Sequence[ShortSpans]
    marks: Sequence[InstantTotal]
    is_coarse: bool


@dataclass(frozen=True)
class NameTotal:
    tables = ("span_totals",)

    name: str
    span_count: int
    instant_count: int
    ended_count: int
    total_us: int
    exclusive_us: int
    longest_us: int | None
    longest_begin_us: int | None
    longest_compile_key: int | None
    longest_compile_id: str | None

    @property
    @published
    def open_count(self) -> int:
        return self.span_count - self.instant_count - self.ended_count

    @property
    def is_moment(self) -> bool:
        return self.span_count == self.instant_count


LANES_SQL = """
select
  l.id, l.process_id, l.thread, p.rank, p.pid, l.span_count, l.first_us, l.last_us,
  (select max(s.depth) from spans as s where s.lane_id = l.id) as deepest
from lanes as l
join processes as p on p.id = l.process_id
where l.run_id = :run_id
  and l.span_count > 0
  and l.first_us + l.last_us is not null
order by
  (select sum(c.total_us) from compiles as c where c.process_id = l.process_id) desc,
  coalesce(p.rank, 1000000),
  p.started_us, l.process_id, l.thread
limit :limit
"""
_DEPTHS = """
with recursive depths (depth) as (
  select 0
  union all
  select depth + 1
  from depths
  where depth < :deepest
)
"""
# Number of spans that begin in the window, up to a limit.
COUNT_SQL = f"""
{_DEPTHS}
select count(*)
from (
  select 1
  from depths as d
  cross join spans as s
  where s.lane_id = :lane_id
    and s.depth = d.depth
    and s.begin_us >= :from_us
    and s.begin_us < :to_us
  limit :most
)
"""  # noqa: S608 - our own names
# The plus signs keep SQLite from using the index of durations, which ignores the window.
_BEGIN = f"""
{_DEPTHS},
found as (
  select s.id, s.depth, s.begin_us, s.duration_us
  from depths as d
  cross join spans as s
  where s.lane_id = :lane_id
    and s.depth = d.depth
    and s.begin_us >= :from_us
    and s.begin_us < :to_us
    and +s.duration_us >= :least_us
    and +s.duration_us < :most_us
)
"""  # noqa: S608 - our own names
_LONGEST = """
with found as (
  select id, depth, begin_us, duration_us
  from (
    select id, depth, begin_us, duration_us
    from spans
    where lane_id = :lane_id
      and duration_us >= :least_us
      and duration_us < :most_us
    order by duration_us desc
    limit :scanned
  )
  where begin_us >= :from_us
    and begin_us < :to_us
)
"""
_WIDE = """
select id
from found
order by duration_us desc, begin_us, depth
limit :most
"""
_SHORT = """
select depth, (begin_us - :from_us) / :bucket_us as bucket, count(*) as span_count,
sum(duration_us) as busy_us
from found
group by depth, bucket
order by depth, bucket
limit :most
"""
WIDE_SQL = {"begin": _BEGIN + _WIDE, "longest": _LONGEST + _WIDE}
SHORT_SQL = {"begin": _BEGIN + _SHORT, "longest": _LONGEST + _SHORT}
# Duration of the longest span that is not read.
CUT_SQL = """
select duration_us
from spans
where lane_id = :lane_id
  and duration_us < :most_us
order by duration_us desc
limit 1 offset :scanned
"""
# At each depth, the span that began before the window and may reach into it.
BEFORE_SQL = f"""
{_DEPTHS}
select s.id
from depths as d
cross join spans as s on s.id = (
  select b.id
  from spans as b
  where b.lane_id = :lane_id
    and b.depth = d.depth
    and b.begin_us < :from_us
  order by b.begin_us desc
  limit 1
)
where s.begin_us + s.duration_us >= :from_us
  and s.duration_us >= :least_us
order by s.depth
limit 1000
"""  # noqa: S608 - our own names
OPEN_SQL = """
select id
from spans
where lane_id = :lane_id
  and duration_us is null
  and begin_us < :to_us
order by begin_us, id
limit :most
"""
# The wanted ids come as a JSON list.
SPANS_SQL = """
select s.id, n.name, s.compile_key, s.compile_id, s.begin_us, s.duration_us, s.depth
from json_each(:ids) as wanted
cross join spans as s on s.id = wanted.value
join span_names as n on n.id = s.name_id
where s.instant = 0
order by s.begin_us, s.depth, s.id
limit :most
"""
MARKS_SQL = """
select n.name, g.first_us, g.mark_count
from (
  select name_id, min(begin_us) as first_us, count(*) as mark_count
  from spans
  where lane_id = :lane_id
    and instant = 1
    and begin_us >= :from_us
    and begin_us < :to_us
  group by (begin_us - :from_us) / :bucket_us, name_id
) as g
join span_names as n on n.id = g.name_id
order by g.first_us, n.name
limit :most
"""
TOTALS_SQL = """
with summed as (
  select
    t.name_id, sum(t.span_count) as span_count, sum(t.instant_count) as instant_count,
    sum(t.ended_count) as ended_count, sum(t.total_us) as total_us,
    sum(t.exclusive_us) as exclusive_us,
    max(t.longest_us) as longest_us
  from lanes as l
  join span_totals as t on t.lane_id = l.id
  where l.run_id = :run_id
  group by t.name_id
),
longest as (
  select
    s.*,
    (
      select x.id
      from lanes as l
      join span_totals as t on t.lane_id = l.id and t.name_id = s.name_id
        and t.longest_us = s.longest_us
      join spans as x on x.lane_id = l.id and x.duration_us = t.longest_us
        and x.begin_us = t.longest_begin_us
      where l.run_id = :run_id
        and x.name_id = s.name_id
      limit 1
    ) as longest_id
  from summed as s
)
select
  n.name, o.span_count, o.instant_count, o.ended_count, o.total_us, o.exclusive_us, o.longest_us,
  x.begin_us as longest_begin_us, x.compile_key as longest_compile_key,
  x.compile_id as longest_compile_id
from longest as o
join span_names as n on n.id = o.name_id
left join spans as x on x.id = o.longest_id
order by o.total_us desc, o.span_count desc, n.name
limit :limit
"""
# Each depth after the one above it: parents before children, without sorting.
LIST_SQL = """
select n.name, s.compile_id, s.begin_us, s.duration_us, s.depth, s.instant, s.args,
  coalesce(c.attempt_count, 1) as attempt_count
from spans as s
join span_names as n on n.id = s.name_id
left join compiles as c on c.id = s.compile_key
where s.lane_id = :lane_id
order by s.depth, s.begin_us, s.duration_us
"""
# The outermost phases contain all others; one without an end lasts to the lane's end.
BUSY_SQL = """
select begin_us, begin_us + coalesce(duration_us, :last_us - begin_us) as end_us
from spans
where lane_id = :lane_id
  and depth = 0
  and coalesce(duration_us, :last_us - begin_us) >= :least_us
order by begin_us
limit :most
"""
FUNCTIONS_SQL = """
select c.id, c.process_id, c.compile_id, c.attempt_count, f.name, f.file, c.line, c.resumed_at,
c.recompiled_from, c.recompile_category
from json_each(:keys) as wanted
cross join compiles as c on c.id = wanted.value
left join functions as f on f.id = c.function_id
limit :most
"""


def list_lanes(reader: sqlite3.Connection, run_id: str, limit: int = LANES) -> list[Lane]:
    rows = reader.execute(LANES_SQL, {"run_id": run_id, "limit": limit}).fetchall()
    names = load_process_names(reader, (row["process_id"] for row in rows))
    return [Lane(**dict(row), name=names[row["process_id"]]) for row in rows]


list_totals = partial(list_rows, NameTotal, TOTALS_SQL, limit=500)


def get_window(
    reader: sqlite3.Connection,
    lane: Lane,
    from_us: int,
    to_us: int,
    width: int,
    *,
    lane_count: int = 1,
) -> LaneWindow:
    """Return the spans of a thread that are at least one of `width` columns wide, and totals by
    depth of the shorter ones.

    `lane_count` threads share the limit on spans.
    """
    wide_us = max(1, round((to_us - from_us) / width))
    bucket_us = max(1, -(-(to_us - from_us) // BUCKETS))
    values: dict[str, Any] = {
        "lane_id": lane.id,
        "deepest": lane.deepest,
        "from_us": from_us,
        "to_us": to_us,
        "bucket_us": bucket_us,
    }
    most = max(_MIN_READ, READ // lane_count)
    count = reader.execute(COUNT_SQL, values | {"most": most + 1}).fetchone()[0]
    way = "begin" if count <= most else "longest"
    # Of short spans the longest cover most; a sixty-fourth of a column is invisible.
    short = values | {
        "least_us": wide_us // 64,
        "most_us": wide_us,
        "scanned": 2 * most,
        "most": BUCKETS * 64,
    }
    cut = reader.execute(CUT_SQL, short).fetchone() if way == "longest" else None
    if cut:  # all or none of one duration, to keep the sums unbiased
        short["least_us"] = max(short["least_us"], cut["duration_us"] + 1)
    wide = values | {
        "least_us": wide_us,
        "most_us": _NEVER_US,
        "scanned": SCANNED,
        "most": max(300, DRAWN // lane_count),
    }
    ids = [row["id"] for row in reader.execute(BEFORE_SQL, wide)]
    ids += [row["id"] for row in reader.execute(WIDE_SQL[way], wide)]
    ids += [row["id"] for row in reader.execute(OPEN_SQL, values | {"most": OPEN})]
    return LaneWindow(
        lane.id,
        list_rows(Span, SPANS_SQL, reader, ids=_json_list(ids), most=len(ids)),
        list_rows(ShortSpans, SHORT_SQL[way], reader, **short),
        list_rows(InstantTotal, MARKS_SQL, reader, **values, most=1000),
        is_coarse=cut is not None,
    )


def load_compile_labels(
    reader: sqlite3.Connection, keys: Sequence[int], *, with_process: bool = False
) -> dict[int, CompileLabel]:
    rows = reader.execute(FUNCTIONS_SQL, {"keys": _json_list(keys), "most": len(keys)}).fetchall()
    processes = (
        load_process_names(reader, (row["process_id"] for row in rows)) if with_process else {}
    )
    labels = {}
    for key, process_id, compile_id, attempts, name, file, line, resumed_at, *role in rows:
        parts = label_function(name, resumed_at), label_line(file, line), label_role(*role)
        text = build_label(processes.get(process_id, ""), *parts)
        labels[key] = CompileLabel(compile_id, text, attempts)
    return labels


def list_busy(
    reader: sqlite3.Connection, lanes: Sequence[Lane], gap_us: int
) -> list[tuple[int, int]]:
    stretches: list[tuple[int, int]] = []
    for lane in lanes:
        values = {
            "lane_id": lane.id,
            "last_us": lane.last_us,
            "least_us": gap_us // 64,
            "most": SCANNED,
        }
        stretches += [tuple(row) for row in reader.execute(BUSY_SQL, values)]
    joined: list[tuple[int, int]] = []
    for begin_us, end_us in sorted(stretches):
        if joined and begin_us - joined[-1][1] <= gap_us:
            joined[-1] = joined[-1][0], max(joined[-1][1], end_us)
        else:
            joined.append((begin_us, end_us))
    return joined


def iterate_spans(reader: sqlite3.Connection, lane_id: int) -> Iterator[dict[str, Any]]:
    """Yield every span of a thread as a dict, parents first."""
    yield from map(dict, reader.execute(LIST_SQL, {"lane_id": lane_id}))


def _json_list(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"
