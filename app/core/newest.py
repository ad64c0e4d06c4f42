"""The newest run and the running runs, defined once for pages, API, reports and commands."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from compileboard.app.core.engine import Dialect, Engine, get_row
from compileboard.app.core.settings import Settings

LATEST = "latest"  # names the newest run, wherever a run is expected
# A run whose recorder fell silent is not running, whatever the store says: nothing was left to
# write how it ended.
SHOWN_STATE = """
  case
    when r.state = 'running' and r.heartbeat_us < :alive_since_us then 'interrupted?'
    else r.state
  end
"""
MAY_CHANGE = ("running", "interrupted?")  # a recorder may resume after its machine slept
_MAX_RUNNING = 1_000
# Whether any run has results. If none has, searching for the newest would read all runs.
HAS_RESULTS: dict[Dialect, str] = {
    "sqlite": "exists (select 1 from run_totals where result_count > 0)",
    "clickhouse": "true",
}
RUNNING_SQL = """
select id
from runs
where state = 'running'
  and heartbeat_us >= :alive_since_us
order by id
limit :limit
"""


class RecorderClock(NamedTuple):
    now_us: int
    stale_after_s: int = Settings.stale_after_s

    @property
    def alive_since_us(self) -> int:
        return self.now_us - self.stale_after_s * 1_000_000

    def is_running(self, state: str, heartbeat_us: int) -> bool:
        return state == "running" and heartbeat_us >= self.alive_since_us


class RunCandidate(NamedTuple):
    run_id: str
    started_us: int
    is_running: bool
    is_timed: bool = True

    @property
    def rank(self) -> tuple[bool, bool, int, str]:
        return not self.is_running, self.is_timed, self.started_us, self.run_id


def read_clock(stale_after_s: int = Settings.stale_after_s) -> RecorderClock:
    return RecorderClock(time.time_ns() // 1000, stale_after_s)


def newest_sql(dialect: Dialect, *, benched: bool, has_ended: bool) -> str:
    """Return the SQL of the newest run. coalesce() makes SQLite read runs before their totals."""
    is_ended = (
        "not (r.state = 'running' and r.heartbeat_us >= :alive_since_us)" if has_ended else "true"
    )
    has_results = (
        f"{HAS_RESULTS[dialect]} and coalesce($t.result_count, 0) > 0" if benched else "true"
    )
    return f"""
select r.id
from runs as r
$totals
where r.source <> 'trial'
  and {is_ended}
  and {has_results}
order by r.started_us desc, r.id desc
limit 1
"""  # noqa: S608  own texts only


def find_newest_run(candidates: Iterable[RunCandidate]) -> str | None:
    """Return the newest run that ended and, if `benched`, timed a model; else the newest of the
    others.
    """
    newest = max(candidates, key=lambda run: run.rank, default=None)
    return newest.run_id if newest else None


def list_running_ids(engine: Engine, clock: RecorderClock) -> frozenset[str]:
    values = {"alive_since_us": clock.alive_since_us, "limit": _MAX_RUNNING}
    return frozenset(str(run_id) for (run_id,) in engine.rows(RUNNING_SQL, values))


def get_newest_run_id(engine: Engine, clock: RecorderClock, benched: bool = False) -> str | None:
    values = {"alive_since_us": clock.alive_since_us}
    for ended in (True, False):
        row = get_row(engine, newest_sql(engine.dialect, benched=benched, has_ended=ended), values)
        if row:
            return str(row["id"])
    return None
