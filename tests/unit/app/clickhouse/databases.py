"""Databases of ClickHouse in this process, for tests with the marker `clickhouse`."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from compileboard.app.clickhouse.client import ClientPool, connect
from compileboard.app.core.address import ClickHouseAddress

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_numbers = count(1)


def make_database(folder: Path) -> ClickHouseAddress:
    """Make an empty database of its own below `chdb_folder`, and return its address."""
    name = f"test_{next(_numbers)}"
    client = connect(ClickHouseAddress(None, None, "default", "default", str(folder)))
    client.command(f"create database {name}")
    client.close()
    return ClickHouseAddress(None, None, "default", name, str(folder))


def open_database(folder: Path) -> Client:
    """Make an empty database of its own below `chdb_folder`, and return a client of it."""
    return connect(make_database(folder))


def empty_database(client: Client) -> None:
    """Delete every row of a client's database; a table without one is left alone, which is much
    faster.
    """
    sql = """
    select name
    from system.tables
    where database = currentDatabase()
      and engine like '%MergeTree'
      and total_rows > 0
    """
    for (name,) in client.query(sql).result_rows:
        client.command(f"truncate table {name}")


class OneClient(ClientPool):
    """A client of a test, lent again and again."""

    def __init__(self, client: Client, folder: Path) -> None:
        super().__init__(ClickHouseAddress(None, None, "default", "default", str(folder)))
        self._idle.append(client)
