"""What of the board's runs the second engine has, and the numbers that were given to it. Publication's one writer."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from compileboard.collectors.store.connection import write_transaction

_STATE_SQL = "select board_id, version, pub from engine_publications"
_ATTEMPT_SQL = """
insert or ignore into published_runs
  (run_id, run_pub, rows_pub, rows_run_pub, annotated_us, rows_count, rows_us, published_us)
values (:run_id, -1, 0, -1, null, 0, :now_us, :now_us)
"""
_ROW_SQL = """
update published_runs
set run_pub = :run_pub, annotated_us = :annotated_us, heartbeat_us = :heartbeat_us, version = :version,
  published_us = :now_us
where run_id = :run_id
"""
_ROLLUPS_SQL = """
update published_runs
set rows_pub = :pub, rows_run_pub = :run_pub, rows_count = rows_count + 1, rows_us = :now_us, month = :month
where run_id = :run_id
"""


class EngineNumbers(NamedTuple):
    """The board, as the engine knows it, and the newest numbers that were given."""

    board_id: str
    version: int
    pub: int


class PublishedRun(NamedTuple):
    """A run that is in the engine now; `pub` and `month` where its roll-ups are."""

    run_id: str
    run_pub: int
    annotated_us: int | None
    heartbeat_us: int
    version: int
    pub: int | None = None
    month: int = 0


def get_numbers(connection: sqlite3.Connection) -> EngineNumbers:
    """Return the newest numbers that were given, naming the board where it has no name yet."""
    row = connection.execute(_STATE_SQL).fetchone()
    if row is None:
        with write_transaction(connection):
            connection.execute(
                "insert or ignore into engine_publications (id, board_id, version, pub) values (1, ?, 0, 0)",
                (uuid.uuid4().hex,),
            )
        row = connection.execute(_STATE_SQL).fetchone()
    return EngineNumbers(*row)


def get_newest_version(connection: sqlite3.Connection) -> int:
    """Return the newest version that the engine said it has."""
    return int(connection.execute("select coalesce(max(version), 0) from published_runs").fetchone()[0])


def begin_attempt(
    connection: sqlite3.Connection, run_ids: Sequence[str], rollup_count: int, now_us: int
) -> tuple[range, range]:
    """Number each of some runs, and each of some roll-ups, for one attempt to publish them.

    The runs are known from now on: what the engine may have is taken from it again if they are deleted.
    """
    with write_transaction(connection):
        connection.executemany(_ATTEMPT_SQL, [{"run_id": run_id, "now_us": now_us} for run_id in run_ids])
        (version,) = connection.execute(
            "update engine_publications set version = version + ? returning version", (len(run_ids),)
        ).fetchone()
        (pub,) = connection.execute("select pub from publications").fetchone()
        if rollup_count:
            (pub,) = connection.execute(
                "update publications set pub = pub + ? returning pub", (rollup_count,)
            ).fetchone()
            connection.execute("update engine_publications set pub = ?", (pub,))
    return range(version - len(run_ids) + 1, version + 1), range(pub - rollup_count + 1, pub + 1)


def save_published(connection: sqlite3.Connection, runs: Iterable[PublishedRun], now_us: int) -> None:
    """Save what the engine has now."""
    values = [{**run._asdict(), "now_us": now_us} for run in runs]
    with write_transaction(connection):
        connection.executemany(_ROW_SQL, values)
        connection.executemany(_ROLLUPS_SQL, [run for run in values if run["pub"] is not None])


def forget_published(connection: sqlite3.Connection, run_ids: Iterable[str]) -> None:
    """Forget deleted runs that the engine no longer has; one that was restored meanwhile is published anew."""
    with write_transaction(connection):
        connection.executemany("delete from published_runs where run_id = ?", [(run_id,) for run_id in run_ids])


def publish_all_again(
    connection: sqlite3.Connection, version: int, pub: int, run_ids: Iterable[str], now_us: int
) -> None:
    """Let every run be published anew, and the engine's runs that the board has not be deleted there.

    No number up to `version` and `pub` is given again: the engine has them.
    """
    with write_transaction(connection):
        connection.execute("delete from published_runs")
        connection.executemany(_ATTEMPT_SQL, [{"run_id": run_id, "now_us": now_us} for run_id in run_ids])
        connection.execute("update publications set pub = max(pub, ?)", (pub,))
        connection.execute(
            "update engine_publications set version = max(version, :version), pub = max(pub, :pub)",
            {"version": version, "pub": pub},
        )


def save_outcome(connection: sqlite3.Connection, error: str | None, now_us: int) -> None:
    """Save how a pass ended, for pages and probes; an error that lasts is saved once."""
    row = connection.execute("select error, passed_us from engine_publications").fetchone()
    if row is None or (error is not None and row[0] == error):
        return
    if error is None and row[0] is None and row[1] is not None and now_us - row[1] < 60_000_000:
        return
    changed = (
        "passed_us = :now_us, error = null, error_us = null" if error is None else "error = :error, error_us = :now_us"
    )
    with write_transaction(connection):
        connection.execute(f"update engine_publications set {changed}", {"error": error, "now_us": now_us})  # noqa: S608
