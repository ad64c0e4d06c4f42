"""Monthly sums, from which break, cause and function lists read past months.

A month is marked as changed before one of its runs is published, and as clean once its sums are
rebuilt; only clean months are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from compileboard.app.engines.client import SETTINGS
from compileboard.collectors.store.rollups.totals import BREAKS, CAUSES, FUNCTIONS, Rollup

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

MONTHS = {"break_months": BREAKS, "cause_months": CAUSES, "function_months": FUNCTIONS}


def note_months(
    client: Client, months: Iterable[int], version: int, *, clean: bool = False
) -> None:
    rows = [(month, int(clean), version) for month in sorted(set(months))]
    if rows:
        client.insert("months", rows, column_names=["month", "is_clean", "version"])


def list_clean_months(client: Client) -> set[int]:
    return {
        row[0]
        for row in client.query("select month from clean_months", settings=SETTINGS).result_rows
    }


def list_months(client: Client) -> set[int]:
    sql = " union distinct ".join(
        f"select distinct month from {rollup.table}_rows"
        for rollup in MONTHS.values()  # noqa: S608 - our own names
    )
    return {row[0] for row in client.query(sql, settings=SETTINGS).result_rows}


def rebuild_month(client: Client, month: int, version: int) -> None:
    """Replace a month's sums; nothing may be published meanwhile."""
    for table, rollup in MONTHS.items():
        client.command(f"truncate table {table}_new")
        client.command(_sum_sql(table, rollup), parameters={"month": month}, settings=SETTINGS)
        is_empty = not client.query(f"select count() from {table}_new").result_rows[0][0]  # noqa: S608  own names only
        change = (
            f"drop partition {int(month)}"
            if is_empty
            else f"replace partition {int(month)} from {table}_new"
        )
        client.command(f"alter table {table} {change}")  # an empty partition replaces none
    note_months(client, [month], version, clean=True)


def _sum_sql(table: str, rollup: Rollup) -> str:
    names = (rollup.key, *rollup.columns)
    sums = ", ".join(f"sum(b.{column}) as {column}" for column in rollup.columns)
    return f"""
insert into {table}_new (month, suite, name, {", ".join(names)}, run_count, first_us, last_us)
select
  {{month:UInt32}}, r.suite as suite, r.name as name,
  b.{rollup.key} as {rollup.key}, {sums}, count() as run_count,
  min(r.started_us) as first_us, max(r.started_us) as last_us
from {rollup.table}_rows as b
join runs as r on r.pub = b.pub
where b.month = {{month:UInt32}}
group by r.suite, r.name, b.{rollup.key}
"""  # noqa: S608  own names only
