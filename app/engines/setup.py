"""Creation of a store: the folder, the board in it, and the tables in ClickHouse."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from compileboard.app.engines.address import ClickHouseAddress, StoreAddress
from compileboard.app.engines.client import EngineAway, connect, explain
from compileboard.app.engines.tables import create
from compileboard.collectors.store.errors import StoreError
from compileboard.collectors.store.migrations import migrate


def prepare_store(address: StoreAddress, password: str = "") -> int:
    """Create or upgrade a store; return how many migrations of the board ran. Raises StoreError."""
    if address.folder is not None:
        make_folder(address.folder)
    migration_count = migrate(address.board)
    if address.clickhouse is not None:
        prepare_engine(address.clickhouse, password)
    return migration_count


def make_folder(folder: str) -> None:
    """Create the folder of a store with access for its owner only. Raises StoreError if that
    fails.
    """
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the folder {folder} cannot be made: {error.strerror or error}"
        ) from error


def prepare_engine(address: ClickHouseAddress, password: str = "") -> None:
    """Create the database in ClickHouse and its tables if they are missing. Raises EngineAway."""
    try:
        client = connect(address, password)
    except EngineAway as error:  # also where there is no such database
        try:
            _create_database(address, password)
        except EngineAway:
            raise error from None
        client = connect(address, password)
    with closing(client), _explained(address):
        create(client, address.cluster)


def _create_database(address: ClickHouseAddress, password: str) -> None:
    from clickhouse_connect.driver.binding import quote_identifier

    everywhere = f" on cluster {quote_identifier(address.cluster)}" if address.cluster else ""
    with (
        closing(connect(replace(address, database="default"), password)) as client,
        _explained(address),
    ):
        client.command(
            f"create database if not exists {quote_identifier(address.database)}{everywhere}"
        )


@contextmanager
def _explained(address: ClickHouseAddress) -> Iterator[None]:
    from clickhouse_connect.driver.exceptions import Error

    try:
        yield
    except Error as error:
        raise explain(error, address) from error
