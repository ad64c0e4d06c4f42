"""ClickHouse's tables: their statements, for one server or a cluster, and their creation.

On a cluster all rows of a run are on one shard: `runs_local` and `run_breaks_rows_local` are the
tables, `runs`, `run_breaks_rows` and `run_breaks` query all shards.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from compileboard.app.clickhouse.client import EngineAway, connect, explain
from compileboard.app.core.address import ClickHouseAddress, StoreAddress
from compileboard.collectors.store.connection import AddressError, StoreError
from compileboard.collectors.store.migrations import migrate

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client


SHARD_KEYS = {
    "runs": "id",
    **dict.fromkeys(
        ("run_breaks_rows", "run_causes_rows", "run_functions_rows", "run_summaries_rows"), "run_id"
    ),
    "results_rows": "run_id",
    "run_break_kinds_rows": "pub",  # made on each shard, of the rows that it has
    "run_cause_kinds_rows": "pub",
}
_FILE = Path(__file__).parent / "tables.sql"
_CREATE = re.compile(r"create (table|view|materialized view) if not exists (\w+)\s*(.*)", re.DOTALL)
_ENGINE = re.compile(r"\bengine = (\w*MergeTree)(?:\(([^)]*)\))?")
_SHARDED = re.compile(rf"\b({'|'.join(SHARD_KEYS)})\b")
_CLUSTER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}|\{cluster\}")
_BLOCK_SIZE = re.compile(r"\b(?:min|max)_compress_block_size = \d+")
_ENGINES_SQL = "select name, engine_full from system.tables where database = currentDatabase()"
# Nothing of what the board was told is there is lost with the server's power.
_DURABLE = "fsync_after_insert = 1, fsync_part_directory = 1"


def list_statements(cluster: str | None = None) -> Iterator[str]:
    """Raises AddressError for an invalid cluster name."""
    if cluster is not None and not _CLUSTER.fullmatch(cluster):
        raise AddressError(
            f"cluster={cluster[:80]!r}: expected the name of a cluster, of letters, digits, - and _"
        )
    text = "\n".join(
        line for line in _FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("--")
    )
    bodies: dict[str, str] = {}
    for part in text.split(";\n"):
        created = _CREATE.match(part.strip().removesuffix(";"))
        if created is None:
            continue
        kind, name, body = created.groups()
        if kind == "table":
            body = bodies[name] = _make_durable(
                bodies[body.removeprefix("as ")] if body.startswith("as ") else body
            )
        yield from (
            _spread(kind, name, body, cluster)
            if cluster
            else (f"create {kind} if not exists {name} {body}",)
        )


def _make_durable(body: str) -> str:
    if _DURABLE in body:
        return body
    return (
        f"{body}, {_DURABLE}"
        if "\nsettings " in body or " settings " in body
        else f"{body} settings {_DURABLE}"
    )


def _spread(kind: str, name: str, body: str, cluster: str) -> Iterator[str]:
    everywhere = f"on cluster '{cluster}'"
    if kind == "materialized view":
        own_body = _SHARDED.sub(r"\1_local", body)
        yield f"create materialized view if not exists {name} {everywhere} {own_body}"
        return
    if kind == "view" and not _SHARDED.search(body):
        yield f"create view if not exists {name} {everywhere} {body}"
        return
    if kind == "view":
        own_body = _SHARDED.sub(r"\1_local", body)
        yield f"create view if not exists {name}_local {everywhere} {own_body}"
    elif name in SHARD_KEYS:
        yield (
            f"create table if not exists {name}_local {everywhere} "
            f"{_replicate(body, name, '{shard}', '{replica}')}"
        )
    else:
        yield (
            f"create table if not exists {name} {everywhere} "
            f"{_replicate(body, name, 'all', '{shard}-{replica}')}"
        )
        return
    key = f", cityHash64({SHARD_KEYS[name]})" if name in SHARD_KEYS else ""
    yield (
        f"create table if not exists {name} {everywhere} as {name}_local\n"
        f"engine = Distributed('{cluster}', currentDatabase(), {name}_local{key})"
    )


def _replicate(body: str, name: str, shard: str, replica: str) -> str:
    def write(engine: re.Match[str]) -> str:
        arguments = f", {engine[2]}" if engine[2] else ""
        return (
            f"engine = Replicated{engine[1]}('/clickhouse/tables/{shard}/{{database}}/{name}', "
            f"'{replica}'{arguments})"
        )

    return _ENGINE.sub(write, body)


def name_stored(table: str, cluster: str | None) -> str:
    return f"{table}_local on cluster '{cluster}'" if cluster and table in SHARD_KEYS else table


def create(client: Client, cluster: str | None = None) -> None:
    """Create missing tables and views. Raises AddressError for an invalid cluster name."""
    for statement in list_statements(cluster):
        client.command(statement)
    engines: dict[str, str] = {row[0]: row[1] for row in client.query(_ENGINES_SQL).result_rows}
    everywhere = f" on cluster '{cluster}'" if cluster else ""
    for statement in list_statements(cluster):
        created = _CREATE.match(statement)
        name = created[2] if created else ""
        lacking = [
            size for size in _BLOCK_SIZE.findall(statement) if size not in engines.get(name, "")
        ]
        if lacking:
            client.command(f"alter table {name}{everywhere} modify setting {', '.join(lacking)}")


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
