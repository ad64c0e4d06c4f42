"""Copy a database's runs until it has millions of compilations.

    python -m benchmarks.store.multiply BASE.db OUT.db

A copy of a run has ids of its own and is as much older as the copies are many; its texts are
shared, and the bodies of its events, which no page across runs reads, are left out. Graph breaks,
causes and functions come anew with each period, since programs change. Roll-ups are copied with
their rows.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import Row, print_table

DAY_US = 86_400_000_000
THINGS = (
    *("functions", "distinct_breaks", "recompile_causes", "rerecording_reasons"),
    "failure_issues",
)
UNIQUE_TEXTS = {"fingerprint", "file"}  # of things: what tells them apart
LEFT_OUT = {"events"}
RUN_CODE = "printf('%04d', :copy)"
LETTERS = 4  # of a run's id, and 6 of a process's, that a copy replaces


@dataclass(frozen=True)
class Table:
    """A table of a database, as it is copied."""

    name: str
    columns: tuple[str, ...]
    references: dict[str, str]  # by column
    key: str | None  # its own number
    stride: int  # between the numbers of a copy and those of the next one

    def insert_sql(self, strides: dict[str, int]) -> str:
        """Write the statement that copies it."""
        values = ", ".join(self._value(column, strides) for column in self.columns)
        return (
            f"insert into {self.name} ({', '.join(self.columns)}) select {values} from "
            f"base.{self.name}"
        )

    def _value(self, column: str, strides: dict[str, int]) -> str:
        target = self.references.get(column)
        if column == "run_id" or target == "runs" or (self.name, column) == ("runs", "id"):
            return f"substr({column}, 1, length({column}) - {LETTERS}) || {RUN_CODE}"
        if column in ("process_id", "parent_process_id") or (self.name, column) == (
            "processes",
            "id",
        ):
            return f"substr({column}, 1, length({column}) - 6) || printf('%06d', :copy)"
        if target in THINGS:
            return f"{column} + :period"
        if column == self.key:
            return f"{column} + {self.stride} * :copy"
        if target in strides:
            return f"{column} + {strides[target]} * :copy"
        if (self.name, column) == ("runs", "pub"):
            return "pub + (select pub from base.publications) * :copy"
        if column.endswith("_us"):
            return (
                f"case when {column} > 1000000000000000 then {column} - :earlier_us else "
                f"{column} end"
            )
        return column


def read_tables(connection: sqlite3.Connection) -> list[Table]:
    """List the tables that have rows of runs."""
    names = [
        name
        for (name,) in connection.execute(
            "select name from main.sqlite_schema where type = 'table' order by name"
        )
    ]
    tables = []
    for name in names:
        info = connection.execute(
            "select name, type, pk from pragma_table_info(?)", (name,)
        ).fetchall()
        references = dict(
            connection.execute('select "from", "table" from pragma_foreign_key_list(?)', (name,))
        )
        columns = tuple(column for column, _type, _pk in info)
        key = next((column for column, kind, pk in info if pk and kind.upper() == "INTEGER"), None)
        is_of_runs = name == "runs" or bool(
            {"run_id", "process_id", "recompile_id", "lane_id"} & set(columns)
        )
        (count,) = connection.execute(f"select count(*) from {name}").fetchone()
        if is_of_runs and count and name not in LEFT_OUT:
            own = [column for column, _type, pk in info if pk] == [key]
            (most,) = (
                connection.execute(f"select max({key}) from {name}").fetchone() if own else (0,)
            )
            tables.append(Table(name, columns, references, key if own else None, (most or 0) + 1))
    return tables


def multiply(
    base: Path, out: Path, compilation_count: int, period_days: int, copies_a_period: int
) -> int:
    """Write the copies; return how many databases they come to."""
    shutil.copyfile(base, out)
    with closing(sqlite3.connect(out, isolation_level=None)) as connection:
        for pragma in (
            "journal_mode = off",
            "synchronous = off",
            "foreign_keys = off",
            "cache_size = -400000",
        ):
            connection.execute(f"pragma {pragma}")
        connection.execute("attach ? as base", (str(base),))
        (own_count,) = connection.execute("select count(*) from base.compilations").fetchone()
        copy_count = -(-compilation_count // own_count)
        tables = read_tables(connection)
        strides = {table.name: table.stride for table in tables if table.key}
        indexes = connection.execute(
            "select name, sql from main.sqlite_schema where type = 'index' and sql <> ''"
        )
        for name, _sql in (made := indexes.fetchall()):
            connection.execute(f"drop index main.{name}")
        connection.execute("begin")
        for period in range(1, -(-copy_count // copies_a_period)):
            copy_things(connection, period)
        for copy in range(1, copy_count):
            period, position = divmod(copy, copies_a_period)
            earlier_us = period * period_days * DAY_US + position * (
                period_days * DAY_US // copies_a_period // 24
            )
            for table in tables:
                values = {"copy": copy, "period": period, "earlier_us": earlier_us}
                connection.execute(table.insert_sql(strides), values)
        connection.execute("update publications set pub = pub * ?", (copy_count,))
        connection.execute("commit")
        for _name, sql in made:
            connection.execute(sql)
        connection.execute("detach base")
        connection.execute("analyze" if had_statistics(base) else "select 1")
        connection.execute("pragma journal_mode = wal")
    return copy_count


def copy_things(connection: sqlite3.Connection, period: int) -> None:
    """Copy what broke graphs and was compiled again, as other things of another period."""
    for table in THINGS:
        columns = [
            name
            for (name,) in connection.execute("select name from pragma_table_info(?)", (table,))
        ]
        values = [
            f"{name} + :period"
            if name in ("id", "function_id")
            else f"{name} || ' ' || :period"
            if name in UNIQUE_TEXTS
            else name
            for name in columns
        ]
        sql = (
            f"insert into {table} ({', '.join(columns)}) select {', '.join(values)} from "
            f"base.{table}"
        )
        connection.execute(sql, {"period": period})


def had_statistics(base: Path) -> bool:
    """Return whether the planner's statistics were made."""
    with closing(sqlite3.connect(base)) as connection:
        return bool(
            connection.execute("select 1 from sqlite_schema where name = 'sqlite_stat1'").fetchall()
        )


def main(argv: list[str] | None = None) -> int:
    """Make the database and print what is in it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.store.multiply", description=__doc__
    )
    parser.add_argument("base", type=Path, metavar="BASE.db", help="of benchmarks.store.replay")
    parser.add_argument(
        "database", type=Path, metavar="OUT.db", help="a file that does not exist yet"
    )
    parser.add_argument("--compilations", type=int, default=5_000_000)
    parser.add_argument("--period-days", type=int, default=180, help="that the base's runs cover")
    parser.add_argument("--copies-a-period", type=int, default=10)
    arguments = parser.parse_args(argv)
    if arguments.database.exists():
        parser.error(f"{arguments.database} exists; give a new file")
    began_s = time.perf_counter()
    copies = multiply(
        arguments.base,
        arguments.database,
        arguments.compilations,
        arguments.period_days,
        arguments.copies_a_period,
    )
    rows = [Row("time", f"{time.perf_counter() - began_s:.0f} s, {copies} copies")]
    with closing(sqlite3.connect(arguments.database)) as connection:
        for table in ("runs", "compilations", "run_breaks", "run_causes", "run_functions", *THINGS):
            (count,) = connection.execute(f"select count(*) from {table}").fetchone()
            rows.append(Row(table, f"{count:,}"))
    rows.append(Row("database", f"{arguments.database.stat().st_size / 1e9:.1f} GB"))
    print_table("Copies", rows, headings=("what", "made", "", "", ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
