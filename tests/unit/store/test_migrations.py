"""The steps that bring a database to a later version: in one transaction, safe when two processes
start at once.
"""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.contract.records import TABLES, Table
from compileboard.collectors.store.connection import (
    DATABASE_VERSION,
    UNRELEASED_APPLICATION_IDS,
    NotAStore,
    StoreError,
    open_reader,
    open_writer,
)
from compileboard.collectors.store.migrations import FOLDER, STEPS, migrate, split_statements
from tests.tools.make_db import main as make_db

RELEASED = "ac2e245e5d3ab04e1eba8af7a7326289ed58de9b4101e6a584985f226e0d3f22"
NEXT = "alter table runs add column next_fact text not null default 'old';"


def read_value(path: Path, sql: str) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchone()[0]


def test_the_version_is_the_number_of_steps() -> None:
    assert len(STEPS) == DATABASE_VERSION


SQLITE_TYPES = {"text": "text", "json": "text", "real": "real", "blob": "blob"}
TABLE_FACTS = (
    'select name, type, "notnull", dflt_value, pk from pragma_table_xinfo(?)',
    'select "from", "table", "to", on_delete from pragma_foreign_key_list(?)',
    "select strict, wr from pragma_table_list where name = ?",
    "select info.name from pragma_index_list(?) as list, pragma_index_info(list.name) as info "
    "where origin = 'u'",
)


def create_table_sql(table: Table) -> str:
    """Return the `create table` of a declared table."""
    columns = [
        " ".join(
            (
                column.name,
                SQLITE_TYPES.get(column.type, "integer"),
                "" if column.is_nullable or "primary key" in column.constraint else "not null",
                column.constraint,
            )
        )
        for column in table.columns.values()
    ]
    options = "strict" if table.has_rowid else "strict, without rowid"
    return f"create table {table.name} ({', '.join((*columns, *table.keys))}) {options}"


def describe_table(connection: sqlite3.Connection, table: str) -> list[list[str]]:
    """Describe a table's columns and keys, whatever the order in which columns were added."""
    return [sorted(map(repr, connection.execute(sql, (table,)))) for sql in TABLE_FACTS]


def test_the_steps_make_the_tables_of_the_records(tmp_path: Path) -> None:
    """A change to contract/records.py needs a step of STEPS and a new DATABASE_VERSION."""
    migrate(tmp_path / "t.db")
    with (
        closing(sqlite3.connect(tmp_path / "t.db")) as migrated,
        closing(sqlite3.connect(":memory:")) as declared,
    ):
        for table in TABLES.values():
            declared.execute(create_table_sql(table))
        for name in TABLES:
            assert describe_table(migrated, name) == describe_table(declared, name), name


def test_the_released_schema_is_not_edited() -> None:
    """Databases of 0.2.0 have it already: an edit would reach new ones alone."""
    digest = hashlib.sha256((FOLDER / "schema_1.sql").read_bytes()).hexdigest()
    assert digest == RELEASED, "schema_1.sql was edited; write a step of STEPS instead"


def test_the_next_step_keeps_what_is_recorded(
    tmp_path: Path, migrate_to_next: Callable[[str], None]
) -> None:
    path = tmp_path / "t.db"
    make_db([str(path)])
    count = read_value(path, "select count(*) from runs")
    migrate_to_next(NEXT)
    assert (migrate(path), migrate(path)) == (1, 0)
    assert read_value(path, "select count(*) from runs where next_fact = 'old'") == count != 0
    assert read_value(path, "pragma user_version") == DATABASE_VERSION + 1


@pytest.mark.parametrize(
    "fault", ["update compiles set function_id = 5;", "select no_such_column from runs;"]
)
def test_a_step_that_fails_changes_nothing(
    tmp_path: Path, migrate_to_next: Callable[[str], None], fault: str
) -> None:
    path = tmp_path / "t.db"
    make_db([str(path)])
    migrate_to_next(f"{NEXT}\n{fault}")
    with pytest.raises(StoreError):
        migrate(path)
    assert read_value(path, "pragma user_version") == DATABASE_VERSION
    assert (
        read_value(path, "select count(*) from pragma_table_info('runs') where name = 'next_fact'")
        == 0
    )


def test_two_processes_may_migrate_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    code = (
        "import sys; from compileboard.collectors.store.migrations import migrate; "
        "print(migrate(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, str(path)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert sorted(process.communicate(timeout=60)[0].strip() for process in started) == [
        "0",
        str(DATABASE_VERSION),
    ]


def test_a_database_of_an_unreleased_build_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as old:
        old.execute(f"pragma application_id = {UNRELEASED_APPLICATION_IDS[-1]}")
        old.execute("pragma user_version = 13")
        old.execute("create table runs (id text)")
    before = path.read_bytes()
    for act in (open_reader, open_writer, migrate):
        with pytest.raises(
            NotAStore,
            match=r"old\.db was made by an unreleased build .*`compileboard-collect import`",
        ):
            act(path)
    assert path.read_bytes() == before


def test_a_schema_that_breaks_off_is_refused() -> None:
    assert len(list(split_statements("create table a (x);\n-- only\ncreate table b (y);\n"))) == 2
    with pytest.raises(StoreError, match="middle of a statement"):
        list(split_statements("create table a (x"))
