"""Passes that publish the board's changes and removals to ClickHouse.

    begin    versions and numbers, given once, and their runs    board, one transaction
    months   are noted as changed                                engine
    things, roll-ups, rows, newest results                       engine, publisher
    end      what the engine has now                             board, one transaction

A pass that is killed at any point is repeated as a whole by the next one, under new numbers.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from compileboard.app.clickhouse import publisher
from compileboard.app.clickhouse.client import SETTINGS, ClientPool, explain
from compileboard.app.clickhouse.publisher import (
    ROLLUPS,
    RunSnapshot,
    delete_unused_rollups,
    read_rollups,
    read_run,
)
from compileboard.collectors.contract.run_config import STALE_AFTER_S
from compileboard.collectors.store import published_runs
from compileboard.collectors.store.connection import StoreError, open_writer
from compileboard.collectors.store.leases import PUBLISH, try_acquire_lease
from compileboard.collectors.store.published_runs import PublicationNumbers, PublishedRun
from compileboard.collectors.store.reopening import open_run_file
from compileboard.collectors.store.rollups import (
    BREAKS,
    CAUSES,
    FUNCTIONS,
    ISSUES,
    RERECORDINGS,
    RollupTable,
)
from compileboard.collectors.store.sealed_files import (
    RunFile,
    RunFileUnavailable,
    SealedRun,
    get_sealed_run,
    stamp_run_file,
)
from compileboard.collectors.store.trash import database_path

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client


MONTHS = {
    "break_months": BREAKS,
    "cause_months": CAUSES,
    "rerecording_months": RERECORDINGS,
    "issue_months": ISSUES,
    "function_months": FUNCTIONS,
}


def mark_months(
    client: Client, months: Iterable[int], version: int, *, clean: bool = False
) -> None:
    rows = [(month, int(clean), version) for month in sorted(set(months))]
    if rows:
        client.insert("months", rows, column_names=["month", "is_clean", "version"])


def list_clean_months(client: Client) -> set[int]:
    return {
        row[0]
        for row in client.query("select month from clean_months", settings=SETTINGS).result_rows
    }


def list_months(client: Client) -> set[int]:
    sql = " union distinct ".join(
        f"select distinct month from {rollup.table}_rows"  # noqa: S608 - our own names
        for rollup in MONTHS.values()
    )
    return {row[0] for row in client.query(sql, settings=SETTINGS).result_rows}


def rebuild_month(client: Client, month: int, version: int) -> None:
    """Replace a month's sums. Nothing may be published concurrently."""
    for table, rollup in MONTHS.items():
        client.command(f"truncate table {table}_new")
        client.command(_sum_sql(table, rollup), parameters={"month": month}, settings=SETTINGS)
        is_empty = not client.query(f"select count() from {table}_new").result_rows[0][0]  # noqa: S608  own names only
        change = (
            f"drop partition {int(month)}"
            if is_empty
            else f"replace partition {int(month)} from {table}_new"
        )
        client.command(f"alter table {table} {change}")  # an empty partition cannot replace one
    mark_months(client, [month], version, clean=True)


def _sum_sql(table: str, rollup: RollupTable) -> str:
    names = (rollup.key, *rollup.columns)
    sums = ", ".join(f"sum(b.{column}) as {column}" for column in rollup.columns)
    return f"""
insert into {table}_new (month, suite, name, {", ".join(names)}, run_count, first_us, last_us)
select
  {{month:UInt32}}, r.suite as suite, r.name as name,
  b.{rollup.key} as {rollup.key}, {sums}, count() as run_count,
  min(r.started_us) as first_us, max(r.started_us) as last_us
from {rollup.table}_rows as b
join runs as r on r.pub = b.pub
where b.month = {{month:UInt32}}
  and r.source <> 'trial'
group by r.suite, r.name, b.{rollup.key}
"""  # noqa: S608  own names only


ROWS_AT_ONCE = 10_000
RUNS_AT_ONCE = 500
FIRST_ROLLUPS_US = 60_000_000  # The first of a live run; then after 2, 4, 8 minutes.
MAX_DOUBLINGS = 6
QUIET_US = 600_000_000  # a month is summed up after so long without a change

# Runs changed since the last pass, and those that were not published completely.
_CHANGED_SQL = """
select
  r.id, r.pub, r.state, r.heartbeat_us, a.changed_us,
  p.run_pub, p.rows_pub, p.rows_run_pub, p.annotated_us, p.rows_count, p.rows_us, p.heartbeat_us,
  p.month
from (
  select id from runs where pub > :cursor
  union
  select value from json_each(:open)
  union
  select x.run_id from run_annotations as x left join published_runs as q on q.run_id = x.run_id
  where q.annotated_us is not x.changed_us
) as c
join runs as r on r.id = c.id
left join run_annotations as a on a.run_id = r.id
left join published_runs as p on p.run_id = r.id
order by r.pub, r.id
"""
_REMOVED_SQL = (
    "select run_id from published_runs where run_id not in (select id from runs) order by run_id"
)
_NUMBERS_SQL = "select pub, removed_pub from publications"


class ForeignBoard(StoreError):
    """ClickHouse's database belongs to another board."""


@dataclass
class PassOutcome:
    whole_count: int = 0  # published with their roll-ups
    row_count: int = 0  # published without roll-ups, which did not change
    removed_count: int = 0
    refused: list[StoreError] = field(
        default_factory=list
    )  # runs that cannot be published, and why


class _Changed(NamedTuple):
    run_id: str
    pub: int
    state: str
    heartbeat_us: int
    changed_us: int | None
    run_pub: int | None
    rows_pub: int | None
    rows_run_pub: int | None
    annotated_us: int | None
    rows_count: int | None
    rows_us: int | None
    published_heartbeat_us: int | None
    month: int | None


class Publisher:
    def __init__(self, clients: ClientPool) -> None:
        self._clients = clients
        self._is_checked = False
        self._cursor = -1  # every run up to this pub is published or open
        self._removed_pub = -1
        self._open: dict[str, int] = {}  # live or waiting runs, by their last pub
        self._next_open: dict[str, int] = {}
        self._lost: dict[
            str, tuple[tuple[int, ...] | None, RunFileUnavailable | None]
        ] = {}  # unusable files, and why
        self._clean: set[int] = set()
        self._changed_us: dict[int, int] = {}  # when months changed

    def run_pass(
        self, board: sqlite3.Connection, now_us: int, *, everything: bool = False
    ) -> PassOutcome:
        """Publish changes; with `everything` also the roll-ups of live runs. One process at a time:
        PUBLISH in leases.

        Raises EngineUnavailable or ForeignBoard; unpublished changes wait for the next pass.
        """
        outcome = PassOutcome()
        try:
            with self._connected(board, now_us):
                self._publish(board, now_us, everything, outcome)
        except StoreError as error:
            published_runs.save_outcome(board, str(error), now_us)
            raise
        published_runs.save_outcome(
            board, str(outcome.refused[0]) if outcome.refused else None, now_us
        )
        return outcome

    @contextmanager
    def _connected(self, board: sqlite3.Connection, now_us: int) -> Iterator[None]:
        from clickhouse_connect.driver.exceptions import Error

        numbers = published_runs.get_numbers(board)
        try:
            with self._clients.borrow() as self._client:
                if not self._is_checked:
                    self._check_board(board, numbers, now_us)
                self._is_checked = False
                yield
                self._is_checked = True
        except Error as error:
            raise explain(error, self._clients.address) from error

    def _check_board(
        self, board: sqlite3.Connection, numbers: PublicationNumbers, now_us: int
    ) -> None:
        boards = {row[0] for row in self._client.query("select id from boards").result_rows}
        if boards and numbers.board_id not in boards:
            raise ForeignBoard(
                "this database of ClickHouse has the runs of another dashboard; name an empty "
                "database, or go back to "
                "the database that it belongs to"
            )
        version = self._query_number("select max(version) from runs")
        tables = ["runs", *(f"{table}_rows" for table in ROLLUPS)]
        pub = max(self._query_number(f"select max(pub) from {table}") for table in tables)  # noqa: S608  own names
        is_older = version > numbers.version or pub > numbers.pub  # the board is older
        if not boards or is_older or version < published_runs.get_newest_version(board):
            rows = self._client.query("select id from runs", settings=SETTINGS).result_rows
            published_runs.publish_all_again(board, version, pub, [row[0] for row in rows], now_us)
        if not boards:
            self._client.insert("boards", [(numbers.board_id,)], column_names=["id"])
        self._clean = list_clean_months(self._client)
        self._cursor, self._removed_pub, self._open = -1, -1, {}

    def _query_number(self, sql: str) -> int:
        return int(self._client.query(sql, settings={"final": 0}).result_rows[0][0])

    def _publish(
        self, board: sqlite3.Connection, now_us: int, everything: bool, outcome: PassOutcome
    ) -> None:
        newest, removed_pub = board.execute(_NUMBERS_SQL).fetchone()  # before the runs are read
        if removed_pub != self._removed_pub:
            self._remove(board, now_us, outcome)
            self._removed_pub = removed_pub
        cursor = board.cursor()
        cursor.row_factory = None
        values = {"cursor": self._cursor, "open": json.dumps(list(self._open))}
        changed = [_Changed(*row) for row in cursor.execute(_CHANGED_SQL, values)]
        self._next_open = {}
        for some in self._read(board, changed, now_us, everything, outcome):
            self._publish_batch(board, some, now_us, outcome)
        if newest != self._cursor:
            publisher.publish_commits(
                board, self._client, published_runs.get_numbers(board).version
            )
        self._cursor, self._open = newest, self._next_open

    def _remove(self, board: sqlite3.Connection, now_us: int, outcome: PassOutcome) -> None:
        removed = [row[0] for row in board.execute(_REMOVED_SQL)]
        for start in range(0, len(removed), RUNS_AT_ONCE):
            some = removed[start : start + RUNS_AT_ONCE]
            months = {
                row[0]
                for row in board.execute(
                    (
                        "select month from published_runs where run_id in (select value from "
                        "json_each(?))"
                    ),
                    (json.dumps(some),),
                )
            }
            versions, _none = published_runs.begin_attempt(board, some, 0, now_us)
            self._mark_months(months, versions[0], now_us)
            publisher.remove_runs(self._client, list(zip(some, versions)))
            published_runs.forget_published(board, some)
            outcome.removed_count += len(some)

    def _read(
        self,
        board: sqlite3.Connection,
        changed: Sequence[_Changed],
        now_us: int,
        everything: bool,
        outcome: PassOutcome,
    ) -> Iterator[list[tuple[_Changed, RunSnapshot]]]:
        some: list[tuple[_Changed, RunSnapshot]] = []
        row_count = 0
        for run in changed:
            is_live = _is_live(run, now_us)
            is_due = everything or self._is_due(run, is_live, now_us)
            is_whole = run.rows_run_pub == run.pub
            if is_live or not (is_whole or is_due):
                self._next_open[run.run_id] = run.pub
            has_news = run.run_pub != run.pub or run.annotated_us != run.changed_us
            if is_live and run.published_heartbeat_us != run.heartbeat_us:
                has_news = True
            if not has_news and (is_whole or not is_due):
                continue
            try:
                snapshot = self._read_run(board, run, with_rollups=is_due and not is_whole)
            except RunFileUnavailable as error:  # the run is still listed, from the board's data
                outcome.refused.append(error)
                self._next_open[run.run_id] = run.pub
                if not has_news:
                    continue
                snapshot = read_run(board, run.run_id, with_rollups=False)
            except StoreError as error:
                outcome.refused.append(error)
                self._next_open[run.run_id] = run.pub
                continue
            if snapshot is None:
                continue
            some.append((run, snapshot))
            row_count += 1 + snapshot.row_count
            if row_count >= ROWS_AT_ONCE or len(some) >= RUNS_AT_ONCE:
                yield some
                some, row_count = [], 0
        if some:
            yield some

    def _is_due(self, run: _Changed, is_live: bool, now_us: int) -> bool:
        if not is_live and (
            not run.rows_count or self._cursor < 0 or self._open.get(run.run_id) == run.pub
        ):
            return True
        if run.rows_us is None or run.rows_count is None:
            return False
        return now_us - run.rows_us >= FIRST_ROLLUPS_US << min(run.rows_count, MAX_DOUBLINGS)

    def _read_run(
        self, board: sqlite3.Connection, run: _Changed, *, with_rollups: bool
    ) -> RunSnapshot | None:
        board.execute("begin")  # row and sealed state must be from the same snapshot
        try:
            sealed = get_sealed_run(board, run.run_id)
            snapshot = read_run(board, run.run_id, with_rollups=with_rollups and sealed is None)
            if snapshot is None:
                return None
            # Roll-ups are stored with the month of the run's start.
            has_moved = bool(run.rows_count) and snapshot.month != run.month
            if has_moved and sealed is None and not with_rollups:
                return read_run(board, run.run_id)
        finally:
            board.execute("rollback")
        if sealed is not None and (with_rollups or has_moved):
            return self._read_sealed(database_path(board), sealed, snapshot)
        return snapshot

    def _read_sealed(self, database: str, sealed: SealedRun, snapshot: RunSnapshot) -> RunSnapshot:
        stamp, error = self._lost.get(sealed.run_id, ((), None))
        now_stamp = stamp_run_file(database, sealed.file)
        if error is not None and stamp == now_stamp:
            raise error
        try:
            return _read_sealed(database, sealed.file, snapshot)
        except RunFileUnavailable as new:
            self._lost[sealed.run_id] = (now_stamp, new)
            raise

    def _publish_batch(
        self,
        board: sqlite3.Connection,
        some: Sequence[tuple[_Changed, RunSnapshot]],
        now_us: int,
        outcome: PassOutcome,
    ) -> None:
        clashes = publisher.find_clashes(self._client, [snapshot for _run, snapshot in some])
        outcome.refused += clashes.values()
        self._next_open |= {run.run_id: run.pub for run, _snapshot in some if run.run_id in clashes}
        some = [(run, snapshot) for run, snapshot in some if run.run_id not in clashes]
        if not some:
            return
        whole_count = sum(snapshot.rollups is not None for _run, snapshot in some)
        versions, pubs = published_runs.begin_attempt(
            board, [run.run_id for run, _snapshot in some], whole_count, now_us
        )
        numbers = iter(pubs)
        rows: list[tuple[RunSnapshot, int, int]] = []
        whole: list[tuple[RunSnapshot, int]] = []
        published: list[PublishedRun] = []
        months: set[int] = set()
        for (run, snapshot), version in zip(some, versions):
            pub = next(numbers) if snapshot.rollups is not None else None
            if pub is not None:
                whole.append((snapshot, pub))
            rows.append((snapshot, (run.rows_pub or 0) if pub is None else pub, version))
            published.append(
                PublishedRun(
                    *(
                        run.run_id,
                        snapshot.run_pub,
                        snapshot.get("changed_us"),
                        snapshot.get("heartbeat_us"),
                        version,
                    ),
                    pub=pub,
                    month=snapshot.month,
                )
            )
            if pub is not None or snapshot.run_pub != run.run_pub:  # annotations are in no sum
                months |= {snapshot.month, run.month or snapshot.month}
        self._mark_months(months, versions[0], now_us)
        publisher.insert_things(self._client, [snapshot for snapshot, _pub in whole], versions[-1])
        publisher.insert_rollups(self._client, whole)
        publisher.insert_rows(self._client, rows)
        measured = set().union(*(publisher.list_measured(snapshot) for snapshot, _pub in whole))
        if whole:
            run_ids = [snapshot.run_id for snapshot, _pub in whole]
            publisher.renew_newest(self._client, run_ids, measured, versions[-1])
        published_runs.save_published(board, published, now_us)
        outcome.whole_count += len(whole)
        outcome.row_count += len(rows) - len(whole)

    def _mark_months(self, months: Iterable[int], version: int, now_us: int) -> None:
        changed = self._clean & set(months)
        mark_months(self._client, changed, version)
        self._clean -= changed
        self._changed_us |= dict.fromkeys(months, now_us)

    def rebuild_months(
        self, board: sqlite3.Connection, now_us: int, max_count: int = 1
    ) -> list[int]:
        """Sum up at most `max_count` changed months that have become quiet, and return them. Raises
        EngineUnavailable, ForeignBoard.
        """
        with self._connected(board, now_us):
            months = sorted(list_months(self._client) - self._clean, reverse=True)
            quiet = [
                month for month in months if now_us - self._changed_us.get(month, 0) >= QUIET_US
            ][:max_count]
            for month in quiet:
                rebuild_month(self._client, month, published_runs.get_numbers(board).version)
                self._clean.add(month)
        return quiet

    def delete_unused_rollups(self, board: sqlite3.Connection, now_us: int) -> int:
        """Return the number of deleted roll-ups. Raises EngineUnavailable, ForeignBoard."""
        with self._connected(board, now_us):
            return delete_unused_rollups(self._client)


def _read_sealed(database: str, file: RunFile, snapshot: RunSnapshot) -> RunSnapshot:
    with open_run_file(database, file) as detail:
        rollups, things = read_rollups(detail, snapshot.run_id)
    return replace(snapshot, rollups=rollups, things=things)


def publish_changes(
    path: str | os.PathLike[str], publisher: Publisher, now_us: int, *, everything: bool = False
) -> PassOutcome | None:
    """Publish what has changed in one pass; return None if another process is publishing. Raises
    StoreError if the database cannot be opened.
    """
    lease = try_acquire_lease(path, PUBLISH)
    if lease is None:
        return None
    with lease, closing(open_writer(path, create=False)) as board:
        return publisher.run_pass(board, now_us, everything=everything)


def _is_live(run: _Changed, now_us: int) -> bool:
    return run.state == "running" and run.heartbeat_us >= now_us - STALE_AFTER_S * 1_000_000
