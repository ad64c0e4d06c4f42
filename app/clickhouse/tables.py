"""Create and upgrade the tables of a store, in SQLite and in ClickHouse (tables.sql)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from compileboard.app.clickhouse.client import EngineUnavailable, connect, explain
from compileboard.app.core.address import ClickHouseAddress, StoreAddress
from compileboard.collectors.contract.records import TABLES, Column
from compileboard.collectors.store.connection import StoreError
from compileboard.collectors.store.migrations import migrate

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client


_FILE = Path(__file__).parent / "tables.sql"
# Rows that the board has noted as published must survive a power failure of the server.
_DURABLE = "fsync_after_insert = 1, fsync_part_directory = 1"
_COLUMNS = re.compile(r"\$(columns|sums|names)\((\w+)((?: -\w+)*)\)")
_TYPES = {"text": "String", "json": "String", "real": "Float64"}  # the others are Int64
_FEW_VALUES = frozenset(
    [
        "source",
        "state",
        "level",
        "suite",
        "mode",
        "dtype",
        "device",
        "hardware",
        "backend",
        "definition",
        "experiment",
        "status",
        "category",
    ]
)
_LONG_TEXTS = frozenset(
    ["command", "cwd", "note", "run_id", "process_id", "task", "message", "origin"]
)


def create_tables(client: Client) -> None:
    """Create missing tables and views in a client's database."""
    text = re.sub(r"(?m)^--.*\n", "", _FILE.read_text(encoding="utf-8"))
    text = _COLUMNS.sub(_write_columns, text)
    for statement in filter(None, map(str.strip, text.split(";\n"))):
        joint = "," if re.search(r"\ssettings ", statement) else " settings"
        client.command(f"{statement}{joint} {_DURABLE}" if " engine = " in statement else statement)


def _write_columns(what: re.Match[str]) -> str:
    kind, name, without = what.groups()
    table = TABLES[name]
    names = table.list_names(*without.replace(" -", " ").split())
    if kind == "names":
        return ", ".join(names)
    return ",\n  ".join(
        _write_column(table.columns[column], is_sum=kind == "sums") for column in names
    )


def _write_column(column: Column, *, is_sum: bool) -> str:
    written = _TYPES.get(column.type, "Int64")
    if column.is_nullable:
        written = f"Nullable({written})"
    elif column.name in _FEW_VALUES:
        written = f"LowCardinality({written})"
    if is_sum and column.type in ("count", "us"):
        written += " codec(T64, ZSTD(1))"
    elif column.name in _LONG_TEXTS:
        written += " codec(ZSTD(1))"
    return f"{column.name} {written}"


def prepare_store(address: StoreAddress, password: str = "") -> int:
    """Create or upgrade a store; return how many migrations of its database ran. Raises StoreError
    if its folder cannot be made or one of its databases cannot be used.
    """
    if address.folder is not None:
        make_folder(address.folder)
    migration_count = migrate(address.board)
    if address.clickhouse is not None:
        prepare_engine(address.clickhouse, password)
    return migration_count


def make_folder(folder: str) -> None:
    """Create the folder of a store, accessible only to its owner. Raises StoreError if that
    fails.
    """
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the folder {folder} cannot be made: {error.strerror or error}"
        ) from error


def prepare_engine(address: ClickHouseAddress, password: str = "") -> None:
    """Create the database in ClickHouse and its missing tables. Raises EngineUnavailable if
    ClickHouse does not answer or refuses.
    """
    try:
        client = connect(address, password)
    except EngineUnavailable as error:  # also if there is no such database
        try:
            _create_database(address, password)
        except EngineUnavailable:
            raise error from None
        client = connect(address, password)
    with closing(client), _explaining_errors(address):
        create_tables(client)


def _create_database(address: ClickHouseAddress, password: str) -> None:
    from clickhouse_connect.driver.binding import quote_identifier

    with (
        closing(connect(replace(address, database="default"), password)) as client,
        _explaining_errors(address),
    ):
        client.command(f"create database if not exists {quote_identifier(address.database)}")


@contextmanager
def _explaining_errors(address: ClickHouseAddress) -> Iterator[None]:
    from clickhouse_connect.driver.exceptions import Error

    try:
        yield
    except Error as error:
        raise explain(error, address) from error
