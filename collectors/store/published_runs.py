"""The runs that were published to ClickHouse, and the version numbers used."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from compileboard.collectors.store.connection import read_value, write, write_transaction

_STATE_SQL = "select board_id, version, pub from engine_publications"
_ATTEMPT_SQL = """
insert or ignore into published_runs
  (run_id, run_pub, rows_pub, rows_run_pub, annotated_us, rows_count, rows_us, published_us)
values (:run_id, -1, 0, -1, null, 0, :now_us, :now_us)
"""
_ROW_SQL = """
update published_runs
set run_pub = :run_pub, annotated_us = :annotated_us, heartbeat_us = :heartbeat_us,
version = :version,
  published_us = :now_us
where run_id = :run_id
"""
_ROLLUPS_SQL = """
update published_runs
set rows_pub = :pub, rows_run_pub = :run_pub, rows_count = rows_count + 1, rows_us = :now_us,
month = :month
where run_id = :run_id
"""


class PublicationNumbers(NamedTuple):
    board_id: str
    version: int
    pub: int


class PublishedRun(NamedTuple):
    run_id: str
    run_pub: int
    annotated_us: int | None
    heartbeat_us: int
    version: int
    pub: int | None = None
    month: int = 0


def get_numbers(connection: sqlite3.Connection) -> PublicationNumbers:
    row = connection.execute(_STATE_SQL).fetchone()
    if row is None:
        write(
            connection,
            (
                "insert or ignore into engine_publications (id, board_id, version, pub) values "
                "(1, ?, 0, 0)"
            ),
            (uuid.uuid4().hex,),
        )
        row = connection.execute(_STATE_SQL).fetchone()
    return PublicationNumbers(*row)


def get_newest_version(connection: sqlite3.Connection) -> int:
    return int(read_value(connection, "select coalesce(max(version), 0) from published_runs"))


def begin_attempt(
    connection: sqlite3.Connection, run_ids: Sequence[str], rollup_count: int, now_us: int
) -> tuple[range, range]:
    with write_transaction(connection):
        connection.executemany(
            _ATTEMPT_SQL, [{"run_id": run_id, "now_us": now_us} for run_id in run_ids]
        )
        version = read_value(
            connection,
            "update engine_publications set version = version + ? returning version",
            (len(run_ids),),
        )
        pub = read_value(connection, "select pub from publications")
        if rollup_count:
            pub = read_value(
                connection, "update publications set pub = pub + ? returning pub", (rollup_count,)
            )
            connection.execute("update engine_publications set pub = ?", (pub,))
    return range(version - len(run_ids) + 1, version + 1), range(pub - rollup_count + 1, pub + 1)


def save_published(
    connection: sqlite3.Connection, runs: Iterable[PublishedRun], now_us: int
) -> None:
    values = [{**run._asdict(), "now_us": now_us} for run in runs]
    with write_transaction(connection):
        connection.executemany(_ROW_SQL, values)
        connection.executemany(_ROLLUPS_SQL, [run for run in values if run["pub"] is not None])


def forget_published(connection: sqlite3.Connection, run_ids: Iterable[str]) -> None:
    with write_transaction(connection):
        connection.executemany(
            "delete from published_runs where run_id = ?", [(run_id,) for run_id in run_ids]
        )


def publish_all_again(
    connection: sqlite3.Connection, version: int, pub: int, run_ids: Iterable[str], now_us: int
) -> None:
    """Publish all runs again, and delete ClickHouse's runs that this database lacks.

    Numbers up to `version` and `pub` are not reused.
    """
    with write_transaction(connection):
        connection.execute("delete from published_runs")
        connection.executemany(
            _ATTEMPT_SQL, [{"run_id": run_id, "now_us": now_us} for run_id in run_ids]
        )
        connection.execute("update publications set pub = max(pub, ?)", (pub,))
        connection.execute(
            "update engine_publications set version = max(version, :version), pub = max(pub, :pub)",
            {"version": version, "pub": pub},
        )


def save_outcome(connection: sqlite3.Connection, error: str | None, now_us: int) -> None:
    row = connection.execute("select error, passed_us from engine_publications").fetchone()
    if row is None or (error is not None and row[0] == error):
        return
    if error is None and row[0] is None and row[1] is not None and now_us - row[1] < 60_000_000:
        return
    changed = (
        "passed_us = :now_us, error = null, error_us = null"
        if error is None
        else "error = :error, error_us = :now_us"
    )
    write(
        connection,
        f"update engine_publications set {changed}",  # noqa: S608 - our own names
        {"error": error, "now_us": now_us},
    )
