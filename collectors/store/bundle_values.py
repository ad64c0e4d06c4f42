"""Remove values from a bundle that no event may have, according to our own schema's types."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.contract.values import (
    MAX_EXACT_INTEGER,
    MAX_NUMBER,
    MAX_SUMMED_INTEGER,
)
from compileboard.collectors.store.run_rows import list_own_rows, read_tables

_RANGES = {"INTEGER": MAX_EXACT_INTEGER, "REAL": MAX_NUMBER}
_SUMMED = ("us", "bytes", "count")  # types of columns
_JSON = (("runs", "facts"), ("results", "facts"))  # read in SQL, which ends at what is no JSON


class Column(NamedTuple):
    """A column that is not a key and has invalid values."""

    table: str
    name: str
    is_odd: str  # a condition
    nothing: str  # what stands for a value that is left out


def find_odd_columns(bundle: sqlite3.Connection) -> list[Column]:
    """Find the columns of a bundle with a value that `contract/values.py` would not accept."""
    found = []
    for table in read_tables(bundle).values():
        columns = _list_columns(bundle, table.name, {*table.parents, *table.unique, "id"})
        conditions = " or ".join(column.is_odd for column in columns)
        if (
            columns
            and bundle.execute(f"select 1 from {table.name} where {conditions} limit 1").fetchone()  # noqa: S608 - our own names
        ):
            found += columns
    return found


def _list_columns(bundle: sqlite3.Connection, table: str, keys: set[str]) -> list[Column]:
    rows = bundle.execute(
        'select name, type, "notnull" as required, pk from pragma_table_info(?)', (table,)
    )
    columns = []
    for name, declared, required, is_key in rows:
        if (table, name) in _JSON:
            columns.append(Column(table, name, f"json_valid({name}) = 0", "'{}'"))
        elif declared in _RANGES and not is_key and name not in keys:
            is_summed = TABLES[table].columns[name].type in _SUMMED
            most = MAX_SUMMED_INTEGER if is_summed else _RANGES[declared]
            columns.append(
                Column(
                    table,
                    name,
                    f"{name} not between -{most} and {most}",
                    "0" if required else "null",
                )
            )
    return columns


def remove_invalid_values(writer: sqlite3.Connection, columns: list[Column]) -> None:
    """Remove the invalid values of columns, and count them as rejects of their runs."""
    own = list_own_rows(read_tables(writer))
    run_ids = [row[0] for row in writer.execute("select id from runs")]
    for column in columns:
        for run_id in run_ids if column.table in own else ():
            writer.execute(
                f"""
                insert into run_rejects (run_id, file_name, kind, reject_count, example)
                select :run_id, 'bundle', 'bad_field', count(*),
                :place || ' is ' || substr(min({column.name}), 1, 60)
                from {column.table}
                where {own[column.table]} and {column.is_odd}
                group by 1
                on conflict (run_id, file_name,
                  kind) do update set reject_count = reject_count + excluded.reject_count
                """,  # noqa: S608 - our own names
                {"run_id": run_id, "place": f"{column.table}.{column.name}"},
            )
        writer.execute(
            f"update {column.table} set {column.name} = {column.nothing} where {column.is_odd}"  # noqa: S608 - our own names
        )
