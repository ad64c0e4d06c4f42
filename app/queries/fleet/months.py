"""Totals of things over runs in ClickHouse: from the sums of whole months as far as possible.

A month counts as a whole if nothing changed since its sums were made and the filter takes all of
its days.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from compileboard.app.queries.fleet.runs import RunFilter

_MONTHLY = frozenset(
    {"text", "name", "suite", "since_us", "before_us"}
)  # text: lists of things have one of their own
_LAST = 999912


@dataclass(frozen=True)
class ThingCounts:
    table: str
    key: str
    columns: Sequence[str]

    @property
    def months(self) -> str:
        return f"{self.table.removeprefix('run_').removesuffix('s')}_months"

    @property
    def kinds(self) -> str:
        return f"{self.table.removesuffix('s')}_kinds_rows"


def takes_months(runs: RunFilter) -> bool:
    return all(value in (None, "") for name, value in vars(runs).items() if name not in _MONTHLY)


def bind_months(runs: RunFilter) -> dict[str, Any]:
    if not takes_months(runs):
        return {}
    first = 0 if runs.since_us is None else _step(runs.since_us - 1, 1)
    last = _LAST if runs.before_us is None else _step(runs.before_us, -1)
    return {"first_month": first, "last_month": last}


def _step(time_us: int, months: int) -> int:
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
    return _MONTHS if takes_months(runs) else ""


def per_thing_sql(counts: ThingCounts, runs: RunFilter, only: str = "") -> str:
    of_month = "".join(
        f"and m.{name} = :{name}\n    " for name in ("suite", "name") if getattr(runs, name)
    )
    columns = (*counts.columns, "compile_us")

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
      {"and b.month not in (select month from months_inside)" if takes_months(runs) else ""}
    {only_of("b")}
    group by b.{counts.key}
"""  # noqa: S608  own names only
    if not takes_months(runs):
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
