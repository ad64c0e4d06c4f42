"""Deletion of roll-ups that no run names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compileboard.app.engines.client import SETTINGS
from compileboard.app.engines.publication.snapshot import ROLLUPS
from compileboard.app.engines.tables import name_stored

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_SUMS = ("run_break_kinds", "run_cause_kinds")  # ClickHouse makes them of what is added to others
_AT_ONCE = 5_000  # numbers in one statement
_WORTH_IT = 20  # a month is rewritten for a twentieth of its rows
_DELETE = {"lightweight_deletes_sync": 2}


def sweep(client: Client, cluster: str | None = None) -> int:
    """Delete unreferenced roll-ups; return their number. Nothing may be published meanwhile."""
    row_count = 0
    for table in (f"{table}_rows" for table in (*ROLLUPS, *_SUMS)):
        sql = f"""
        select month, groupUniqArrayIf(pub, is_dead), countIf(is_dead) as dead_count
        from (select month, pub, pub not in (select pub from runs final) as is_dead from {table})
        group by month
        having dead_count * {_WORTH_IT} >= count()
        """  # noqa: S608  own names only
        for month, pubs, count in client.query(sql, settings=SETTINGS).result_rows:
            for start in range(0, len(pubs), _AT_ONCE):
                partition = f"{name_stored(table, cluster)} in partition {int(month)}"
                values = {"pubs": pubs[start : start + _AT_ONCE]}
                client.command(
                    f"delete from {partition} where pub in {{pubs:Array(Int64)}}",  # noqa: S608 - our own names
                    values,
                    settings=_DELETE,
                )
            row_count += count
    return row_count
