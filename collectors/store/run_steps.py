"""Read the usual step of a run, and the cost of graph breaks in it."""

from __future__ import annotations

import sqlite3

from compileboard.collectors.contract import shapes
from compileboard.collectors.fixes.step_costs import (
    BreakCost,
    RunSteps,
    estimate_break_costs,
    load_costs,
)
from compileboard.collectors.store.reading import read_json

MAX_WINDOWS = 16

WINDOWS_SQL = """
select
  w.process_id, w.earlier_count, w.costs, w.time_us,
  max(p.last_seen_us, case
    -- A process that was killed ends with a run of one, and of several nobody knows when.
    when p.snapshot_final or (r.state <> 'running'
      and (select count(*) from processes as o where o.run_id = r.id) > 1) then 0
    else coalesce(r.ended_us, r.heartbeat_us, 0)
  end) as until_us
from step_windows as w
join processes as p on p.id = w.process_id
join runs as r on r.id = w.run_id
where w.run_id = :run_id
order by w.time_us, w.id
limit :most
"""
# Compile IDs restart at each reset(): the newest before the window's end counts.
OUTCOMES_SQL = """
select c.compile_id, b.outcome, b.distinct_id
from compiles as c
left join graph_breaks as b on b.compile_key = c.id
where c.process_id = :process_id
  and c.started_us <= :time_us
order by c.id, b.id
"""


def load_run_steps(connection: sqlite3.Connection, run_id: str) -> RunSteps | None:
    """Return the steps of the window whose process spends most time in them until its end, and each
    graph break's largest cost.
    """
    values = {"run_id": run_id, "most": MAX_WINDOWS}
    windows = []
    for row in connection.execute(WINDOWS_SQL, values).fetchall():
        try:
            steps = _read_window(connection, row)
        except (ArithmeticError, LookupError, TypeError, ValueError):  # a row that was changed
            continue
        windows += [steps] if steps else []
    if not windows:
        return None
    by_break: dict[int, BreakCost] = {}
    for steps in windows:
        for distinct_id, cost in steps.by_break.items():
            known = by_break.setdefault(distinct_id, cost)
            by_break[distinct_id] = max(known, cost, key=lambda one: one.run_us)
    longest = max(windows, key=lambda steps: steps.us * steps.count)
    return RunSteps(longest.us, longest.count, by_break)


def _read_window(connection: sqlite3.Connection, row: sqlite3.Row) -> RunSteps | None:
    stored = read_json(shapes.WindowCosts, row["costs"])
    if stored is None:
        return None
    usual_count, step_us = stored["usual_count"], stored["step_us"]
    timed_count = usual_count + stored["other_count"]
    left_us = max(0, row["until_us"] - row["time_us"])
    count = row["earlier_count"] + timed_count + round(left_us / (step_us or 1))
    newest = {
        each["compile_id"]: (each["outcome"], each["distinct_id"])
        for each in connection.execute(OUTCOMES_SQL, dict(row))
    }
    broken = {compile_id: ended for compile_id, ended in newest.items() if ended[0]}
    # Steps that called other graphs, or compiled, may not have met these breaks.
    usual_count = round(count * usual_count / timed_count)
    by_break = {
        distinct_id: BreakCost(sum(cost.us for cost in costs), usual_count)
        for distinct_id, costs in estimate_break_costs(load_costs(stored), broken).items()
    }
    return RunSteps(step_us, count, by_break)
