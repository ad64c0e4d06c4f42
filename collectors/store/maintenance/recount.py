"""Recount roll-ups from their rows; differences are bugs or damage.

Times of graph breaks and causes depend on event order and are not compared. Pruned runs have no
rows; sealed ones have them in their file.
"""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple

from compileboard.collectors.store.rollups.results import merge_results, read_measured
from compileboard.collectors.store.rollups.summaries import NUMBERS, OF_SUITE_SQL, SET, sum_up

MOST_EXAMPLES = 5
SUITES_SQL = """
select distinct x.run_id, s.suite
from results as x
join series as s on s.id = x.series_id
order by x.run_id, s.suite
"""


class Recount(NamedTuple):
    table: str
    key: tuple[str, ...]
    counted: str  # a select with the key and every counter
    counters: tuple[str, ...]


# Each table once: its counters, by run; what two tables count is their sum.
_FORWARD = "kind = 'forward'"
RUN_TOTALS = {
    "compiles": {"compile_count": "count(*)"},
    "compilations": {
        "record_count": "count(*)",
        "recompile_limit_count": f"sum({_FORWARD} and outcome = 'recompile_limit')",
        "failure_count": f"sum({_FORWARD} and outcome = 'failed')",
        "skipped_frame_count": f"sum({_FORWARD} and outcome = 'skipped')",
        "restart_count": "sum(restart_count)",
        "compile_us": "sum(case when kind <> 'runtime' then duration_us end)",
    },
    "graph_breaks": {"graph_break_count": "count(*)"},
    "recompiles": {"recompile_count": "count(*)"},
    "failures": {"failure_count": "sum(phase <> 'compile')"},
    "cache_lookups": {
        f"cache_{result}_count": f"sum(result = '{result}')" for result in ("hit", "miss", "bypass")
    },
    "cudagraph_skips": {"cudagraph_skip_count": "count(*)"},
    "processes": {"process_count": "count(*)"},
    "results": {"result_count": "count(*)", "failed_result_count": "sum(status = 'failed')"},
}
_TOTAL_NAMES = tuple(dict.fromkeys(name for counters in RUN_TOTALS.values() for name in counters))


def _count_totals() -> str:
    sums = [
        "left join (select run_id, "  # noqa: S608 - our own names
        f"{', '.join(f'{sql} as {name}' for name, sql in counters.items())} "
        f"from {table} group by run_id) as {table} on {table}.run_id = r.id"
        for table, counters in RUN_TOTALS.items()
    ]
    columns = []
    for name in _TOTAL_NAMES:
        parts = [
            f"coalesce({table}.{name}, 0)"
            for table, counters in RUN_TOTALS.items()
            if name in counters
        ]
        columns.append(f"{' + '.join(parts)} as {name}")
    return f"select r.id as run_id, {', '.join(columns)} from runs as r {' '.join(sums)}"  # noqa: S608 - our own names


RECOUNTS = (
    Recount(
        "run_totals",
        ("run_id",),
        _count_totals(),
        _TOTAL_NAMES,
    ),
    Recount(
        "run_breaks",
        ("run_id", "distinct_id"),
        (
            "select run_id, distinct_id, count(*) as break_count from graph_breaks group by "
            "run_id, distinct_id"
        ),
        ("break_count",),
    ),
    Recount(
        "run_causes",
        ("run_id", "cause_id"),
        """
        select r.run_id, g.cause_id, count(*) as guard_failure_count,
        sum(g.position = 0) as recompile_count
        from guard_failures as g
        join recompiles as r on r.id = g.recompile_id
        group by r.run_id, g.cause_id
        """,
        ("guard_failure_count", "recompile_count"),
    ),
    Recount(
        "run_functions",
        ("run_id", "function_id"),
        """
        select
          run_id, function_id, sum(graph_break_count) as graph_break_count,
          sum(recompile_count) as recompile_count,
          sum(compile_us) as compile_us
        from (
          select run_id, function_id, 1 as graph_break_count, 0 as recompile_count,
          0 as compile_us from graph_breaks
          union all
          select run_id, function_id, 0, 1, 0 from recompiles
          union all
          select run_id, function_id, 0, 0, coalesce(duration_us, 0) from compilations
            where kind <> 'runtime'
        )
        group by run_id, function_id
        """,
        ("graph_break_count", "recompile_count", "compile_us"),
    ),
    Recount(
        "span_totals",
        ("lane_id", "name_id"),
        """
        select
          lane_id, name_id, count(*) as span_count, sum(instant) as instant_count,
          sum(instant = 0 and duration_us is not null) as ended_count,
          coalesce(sum(duration_us), 0) as total_us
        from spans
        group by lane_id, name_id
        """,
        ("span_count", "instant_count", "ended_count", "total_us"),
    ),
)
_ELSEWHERE = "(select run_id from pruned_runs union all select run_id from sealed_runs)"
_OF_PRUNED = {  # a pruned run has no lanes
    "span_totals": "and coalesce(t.lane_id, c.lane_id) not in (select id from lanes where "
    "run_id in "
    "(select run_id from sealed_runs))"
}


def list_differences(connection: sqlite3.Connection) -> list[str]:
    """Describe differing roll-ups, at most five of each kind."""
    return [
        line for recount in RECOUNTS for line in _compare(connection, recount)
    ] + _compare_summaries(connection)


def _compare(connection: sqlite3.Connection, recount: Recount) -> list[str]:
    same_key = " and ".join(f"c.{name} = t.{name}" for name in recount.key)
    differs = " or ".join(
        f"coalesce(c.{name}, 0) <> coalesce(t.{name}, 0)" for name in recount.counters
    )
    keys = ", ".join(f"coalesce(t.{name}, c.{name}) as {name}" for name in recount.key)
    pairs = ", ".join(f"coalesce(t.{name}, 0), coalesce(c.{name}, 0)" for name in recount.counters)
    pruned = _OF_PRUNED.get(recount.table, f"and coalesce(t.run_id, c.run_id) not in {_ELSEWHERE}")
    # What belongs to no function or cause is in no roll-up.
    known = " and ".join(f"coalesce(t.{name}, c.{name}) is not null" for name in recount.key)
    sides = [("left join", "t", "c"), ("left join", "c", "t")]
    tables = {"t": recount.table, "c": "counted"}  # counted once for both sides
    statement = " union ".join(
        f"select {keys}, {pairs} from {tables[first]} as {first} {join} {tables[second]} as "  # noqa: S608 - our own names
        f"{second} on {same_key} "
        f"where ({differs}) and {known} {pruned}"
        for join, first, second in sides
    )
    statement = f"with counted as materialized ({recount.counted}) {statement}"
    lines = []
    for row in connection.execute(f"{statement} limit {MOST_EXAMPLES}"):
        values = list(row)
        key, numbers = values[: len(recount.key)], values[len(recount.key) :]
        changes = [
            f"{name} is {stored}, its rows come to {counted}"
            for name, stored, counted in zip(recount.counters, numbers[::2], numbers[1::2])
            if stored != counted
        ]
        lines.append(f"{recount.table} of {', '.join(map(str, key))}: {'; '.join(changes)}")
    return lines


def _compare_summaries(connection: sqlite3.Connection) -> list[str]:
    columns = ("run_id", *SET, "definition", "time_us", *NUMBERS)
    lines: list[str] = []
    for run_id, suite in connection.execute(SUITES_SQL).fetchall():
        key = {"run_id": run_id, "suite": suite}
        rows = merge_results(read_measured(connection.execute(OF_SUITE_SQL, key)))
        counted = {_row(columns, values) for values in sum_up(run_id, rows)}
        stored = {
            tuple(row)
            for row in connection.execute(
                (
                    f"select {', '.join(columns)} from run_summaries where run_id = :run_id and "  # noqa: S608 - our own names
                    "suite = :suite"
                ),
                key,
            )
        }
        if counted != stored:
            lines.append(
                f"run_summaries of run {run_id}, suite {suite}: not what its results come to"
            )
        if len(lines) == MOST_EXAMPLES:
            break
    return lines


def _row(columns: tuple[str, ...], values: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(values[name] for name in columns)
