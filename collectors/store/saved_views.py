"""Saved views: named addresses of pages with their filters."""

from __future__ import annotations

import sqlite3

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.store.connection import has_row, write_transaction

NAME_LIMIT = 100
ADDRESS_LIMIT = 4_000
MAX_VIEWS = 500

INSERT = """
insert into saved_views (name, address, author, created_us, changed_us)
values (:name, :address, :author, :now_us, :now_us)
"""
RENAME = "update saved_views set name = :name, changed_us = :now_us where id = :id"
_SAME_NAME = "select 1 from saved_views where name = :name and id is not :id"


def save_view(
    connection: sqlite3.Connection,
    name: str,
    address: str,
    *,
    author: str | None = None,
    now_us: int | None = None,
) -> int:
    """Save a view and return its id.

    Raises ValueError for an invalid or used name, a long address, or too many views.
    """
    if len(address) > ADDRESS_LIMIT:
        raise ValueError(
            f"an address has at most {ADDRESS_LIMIT:,} characters; this one has {len(address):,}"
        )
    now_us = read_clock_us() if now_us is None else now_us
    with write_transaction(connection):
        if connection.execute("select count(*) from saved_views").fetchone()[0] >= MAX_VIEWS:
            raise ValueError(f"there are {MAX_VIEWS} saved views, the most; delete one first")
        values = {"name": _check_name(connection, name, None), "address": address}
        saved = connection.execute(INSERT, values | {"author": author, "now_us": now_us})
    return saved.lastrowid or 0


def rename_view(
    connection: sqlite3.Connection, view_id: int, name: str, *, now_us: int | None = None
) -> bool:
    """Rename a view; return False if it does not exist. Raises ValueError if the name is invalid or
    another view has it.
    """
    now_us = read_clock_us() if now_us is None else now_us
    with write_transaction(connection):
        checked = _check_name(connection, name, view_id)
        values = {"id": view_id, "name": checked, "now_us": now_us}
        return connection.execute(RENAME, values).rowcount == 1


def delete_view(connection: sqlite3.Connection, view_id: int) -> bool:
    with write_transaction(connection):
        sql = "delete from saved_views where id = :id"
        return connection.execute(sql, {"id": view_id}).rowcount == 1


def _check_name(connection: sqlite3.Connection, name: str, view_id: int | None) -> str:
    name = " ".join(name.split())
    if not name or not name.isprintable() or len(name) > NAME_LIMIT:
        raise ValueError(f"name: must be 1 to {NAME_LIMIT} printable characters, got {name[:40]!r}")
    if has_row(connection, _SAME_NAME, {"name": name, "id": view_id}):
        raise ValueError(f"name: there is a saved view {name!r} already; choose another name")
    return name
