"""Publication of runs and commits.

A run's roll-ups are inserted under a new number. Then its row, which has that number, is inserted
and thereby commits them, so a failed attempt can be repeated.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from compileboard.app.benchmarks.trend_queries import DRIVER_VERSION, TRITON_VERSION
from compileboard.app.clickhouse.client import SETTINGS
from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.store.connection import StoreError

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client


Values = tuple[Any, ...]

_RUN = TABLES["runs"].list_names("facts", "pub")
# Columns of a run's row, in this order, without its publication and tags.
RUN_NAMES = (
    *(*_RUN, "driver_version", "triton_version"),
    *(
        *TABLES["run_annotations"].list_names("run_id"),
        *TABLES["run_totals"].list_names("run_id"),
    ),
)
_TOTALS = ", ".join(
    f"coalesce(t.{name}, 0) as {name}" for name in TABLES["run_totals"].list_names("run_id")
)
_RUN_SQL = f"""
select
  {", ".join(f"r.{name}" for name in _RUN)},
  {DRIVER_VERSION} as driver_version, {TRITON_VERSION} as triton_version,
  a.title, a.note, coalesce(a.pinned, 0) as pinned, a.changed_us,
  {_TOTALS},
  r.pub
from runs as r
left join run_totals as t on t.run_id = r.id
left join run_annotations as a on a.run_id = r.id
where r.id = :run_id
"""  # noqa: S608  own names only
_TAGS_SQL = "select key, value from run_tags where run_id = :run_id order by key"
# The roll-ups of a run, without its id: the columns of each table on both sides.
ROLLUPS: dict[str, tuple[str, ...]] = {
    table: TABLES[table].list_names("run_id", "traceback", "facts")
    for table in (
        *("run_breaks", "run_causes", "run_rerecordings", "run_issues", "run_functions"),
        *("run_summaries", "results"),
    )
}
# Items by content id, and what distinguishes those with the same id.
THINGS = {
    table: TABLES[table].list_names()
    for table in (
        "functions",
        "distinct_breaks",
        "recompile_causes",
        "rerecording_reasons",
        "failure_issues",
        "series",
    )
}
_POINTING = {
    "functions": (
        "select function_id from run_functions where run_id = :run_id",
        "select d.function_id from run_breaks as b join distinct_breaks as d on d.id = "
        "b.distinct_id "
        "where b.run_id = :run_id",
        "select d.function_id from run_causes as b join recompile_causes as d on d.id = b.cause_id "
        "where b.run_id = :run_id",
        "select d.function_id from run_rerecordings as b join rerecording_reasons as d "
        "on d.id = b.reason_id where b.run_id = :run_id",
        "select d.function_id from run_issues as b join failure_issues as d on d.id = b.issue_id "
        "where b.run_id = :run_id",
    ),
    "distinct_breaks": ("select distinct_id from run_breaks where run_id = :run_id",),
    "recompile_causes": ("select cause_id from run_causes where run_id = :run_id",),
    "rerecording_reasons": ("select reason_id from run_rerecordings where run_id = :run_id",),
    "failure_issues": ("select issue_id from run_issues where run_id = :run_id",),
    "series": ("select series_id from results where run_id = :run_id",),
}


@dataclass(frozen=True)
class RunSnapshot:
    """The rows of a run to publish.

    `run` has the columns RUN_NAMES; `rollups` and `things` have the rows of each table, with the
    columns of ROLLUPS and THINGS.
    """

    run_id: str
    run_pub: int  # runs.pub in ClickHouse
    run: Values
    tags: dict[str, str]
    rollups: dict[str, list[Values]] | None = None
    things: dict[str, list[Values]] | None = None

    def get(self, name: str) -> Any:
        return self.run[RUN_NAMES.index(name)]

    @property
    def month(self) -> int:
        return utc_month(self.get("started_us"))

    @property
    def row_count(self) -> int:
        return sum(len(rows) for rows in (self.rollups or {}).values())


def utc_month(started_us: int) -> int:
    """Return the UTC month of a time, clamped to the first or last possible one."""
    try:
        started = datetime.fromtimestamp(started_us // 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return 999912 if started_us > 0 else 101
    return started.year * 100 + started.month


def read_run(
    connection: sqlite3.Connection, run_id: str, *, with_rollups: bool = True
) -> RunSnapshot | None:
    key = {"run_id": run_id}
    with _read_transaction(connection):
        rows = _read_rows(connection, _RUN_SQL, key)
        if not rows:
            return None
        (*run, pub) = rows[0]
        tags: dict[str, str] = dict(_read_rows(connection, _TAGS_SQL, key))
        rollups, things = read_rollups(connection, run_id) if with_rollups else (None, None)
    return RunSnapshot(run_id, pub, tuple(run), tags, rollups, things)


def read_rollups(
    connection: sqlite3.Connection, run_id: str
) -> tuple[dict[str, list[Values]], dict[str, list[Values]]]:
    key = {"run_id": run_id}
    rollups = {
        table: _read_rows(
            connection,
            f"select {', '.join(names)} from {table} where run_id = :run_id",  # noqa: S608 - our own names
            key,
        )
        for table, names in ROLLUPS.items()
    }
    return rollups, {table: _read_rows(connection, _things_sql(table), key) for table in THINGS}


def _things_sql(table: str) -> str:
    return (
        f"select {', '.join(THINGS[table])} from {table} where id in "  # noqa: S608 - our own names
        f"({' union '.join(_POINTING[table])})"
    )


def _read_rows(connection: sqlite3.Connection, sql: str, values: dict[str, str]) -> list[Values]:
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(sql, values).fetchall()


@contextmanager
def _read_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    if connection.in_transaction:
        yield
        return
    connection.execute("begin")
    try:
        yield
    finally:
        connection.execute("rollback")


def list_columns(table: str) -> Sequence[str]:
    return (
        *(
            ("month", "pub", "run_id")
            if table == "results"
            else ("month", "pub", "started_us", "run_id")
        ),
        *ROLLUPS[table],
    )


_TABLES = {"series": "series_rows"} | {table: f"{table}_rows" for table in ROLLUPS}
_INSERT: dict[str, Any] = {"max_partitions_per_insert_block": 0}  # an import may cover years
_AT_ONCE = 2_000  # ids per statement: a request's field has at most 128 KiB
# Distinguishes items with the same id: the columns after it.
_CONTENT = {"functions": 2, "series": 10} | dict.fromkeys(
    ("distinct_breaks", "recompile_causes", "rerecording_reasons", "failure_issues"), 1
)
_RESULT_NAMES = ("id", "run_id", *ROLLUPS["results"][1:])
_MEASURED = (
    "select arrayJoin(arrayZip({series_ids:Array(Int64)}, {experiments:Array(String)})) as measured"
)
_NEWEST_SQL = f"""
insert into newest_results ({", ".join(_RESULT_NAMES)}, version, is_deleted)
select {", ".join(_RESULT_NAMES)}, {{version:Int64}}, 0
from results
where (series_id, experiment, time_us, id) in (
  select series_id, experiment, (max((time_us, id)) as newest).1, newest.2
  from results
  where (series_id, experiment) in ({_MEASURED})
  group by series_id, experiment
)
"""  # noqa: S608  own names only
_GONE_SQL = f"""
insert into newest_results (series_id, experiment, version, is_deleted)
select series_id, experiment, {{version:Int64}}, 1
from newest_results
where (series_id, experiment) in ({_MEASURED})
  and version < {{version:Int64}}
"""  # noqa: S608 - our own names
_NEWEST_OF_RUNS_SQL = """
select series_id, experiment
from newest_results
where run_id in {run_ids:Array(String)}
"""
_COMMIT_NAMES = ("hash", "parent_hash", "time_us", "author", "subject")
_COMMIT_STATE_SQL = (
    "select count(*), count(parent_hash), coalesce(sum(time_us % 1000003), 0) from commits"
)
_COMMITS_SQL = f"select {', '.join(_COMMIT_NAMES)} from commits"  # noqa: S608  own names
_KNOWN_COMMITS_SQL = "select hash, parent_hash from commits"


class IdClash(StoreError):
    """Two items have the same id, so nothing of the run is published."""


def find_clashes(client: Client, snapshots: Sequence[RunSnapshot]) -> dict[str, IdClash]:
    clashes: dict[str, IdClash] = {}
    for table, names in THINGS.items():
        names = names[: 1 + _CONTENT[table]]
        sql = (
            f"select {', '.join(names)} from {_TABLES.get(table, table)} where id in "  # noqa: S608 - our own names
            f"{{ids:Array(Int64)}}"
        )
        ids = sorted(
            {row[0] for snapshot in snapshots for row in (snapshot.things or {}).get(table, ())}
        )
        known: dict[int, tuple[Any, ...]] = {}
        for some in _slice_values(ids):
            rows = client.query(sql, parameters={"ids": some}, settings=SETTINGS).result_rows
            known |= {row[0]: tuple(row) for row in rows}
        for snapshot in snapshots:
            for row in (snapshot.things or {}).get(table, ()):
                content = row[: len(names)]
                if known.setdefault(row[0], content) != content:
                    clashes[snapshot.run_id] = IdClash(
                        f"run {snapshot.run_id} is not published: in {table} the id {row[0]} is of "
                        f"{known[row[0]][1:]!r}, and would be of {content[1:]!r} too. Report this."
                    )
    return clashes


def insert_things(client: Client, snapshots: Sequence[RunSnapshot], version: int) -> None:
    for table, names in THINGS.items():
        things = {
            row[0]: row for snapshot in snapshots for row in (snapshot.things or {}).get(table, ())
        }
        if things:
            _insert_rows(
                client,
                _TABLES.get(table, table),
                [(*row, version) for row in things.values()],
                (*names, "version"),
            )


def insert_rollups(client: Client, published: Iterable[tuple[RunSnapshot, int]]) -> None:
    rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in ROLLUPS}
    for snapshot, pub in published:
        month, started_us = snapshot.month, snapshot.get("started_us")
        for table, values in (snapshot.rollups or {}).items():
            key = (
                (month, pub, snapshot.run_id)
                if table == "results"
                else (month, pub, started_us, snapshot.run_id)
            )
            rows[table] += [(*key, *row) for row in values]
    for table, values in rows.items():
        if values:
            _insert_rows(client, _TABLES[table], values, list_columns(table))


def insert_rows(client: Client, published: Iterable[tuple[RunSnapshot, int, int]]) -> None:
    rows = [(*snapshot.run, snapshot.tags, pub, version, 0) for snapshot, pub, version in published]
    _insert_rows(client, "runs", rows, (*RUN_NAMES, "tags", "pub", "version", "is_deleted"))


def remove_runs(client: Client, removed: Sequence[tuple[str, int]]) -> None:
    _insert_rows(
        client,
        "runs",
        [(run_id, version, 1) for run_id, version in removed],
        ("id", "version", "is_deleted"),
    )
    renew_newest(
        client,
        [run_id for run_id, _version in removed],
        (),
        max(version for _run_id, version in removed),
    )


def list_measured(snapshot: RunSnapshot) -> set[tuple[int, str]]:
    names = ROLLUPS["results"]
    series, experiment = names.index("series_id"), names.index("experiment")
    return {(row[series], row[experiment]) for row in (snapshot.rollups or {}).get("results", ())}


def renew_newest(
    client: Client, run_ids: Sequence[str], measured: Iterable[tuple[int, str]], version: int
) -> None:
    """Recompute the newest result of each series that the runs measured, or whose stored newest
    result is from one of them.
    """
    keys = set(measured)
    for some_ids in _slice_values(run_ids):
        rows = client.query(
            _NEWEST_OF_RUNS_SQL, parameters={"run_ids": some_ids}, settings=SETTINGS
        ).result_rows
        keys |= {(series_id, experiment) for series_id, experiment in rows}
    for some in _slice_values(sorted(keys)):
        series_ids, experiments = zip(*some)
        values = {
            "series_ids": list(series_ids),
            "experiments": list(experiments),
            "version": version,
        }
        for sql in (_NEWEST_SQL, _GONE_SQL):
            client.command(sql, parameters=values, settings=SETTINGS | _INSERT)


def _slice_values(values: Sequence[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(values), _AT_ONCE):
        yield list(values[start : start + _AT_ONCE])


def _insert_rows(
    client: Client, table: str, rows: Sequence[Sequence[Any]], names: Sequence[str]
) -> None:
    client.insert(table, rows, column_names=list(names), settings=_INSERT)


def publish_commits(board: sqlite3.Connection, client: Client, version: int) -> int:
    state = tuple(board.execute(_COMMIT_STATE_SQL).fetchone())
    if tuple(client.query(_COMMIT_STATE_SQL, settings=SETTINGS).result_rows[0]) == state:
        return 0
    known: dict[str, Any] = {
        row[0]: row[1] for row in client.query(_KNOWN_COMMITS_SQL, settings=SETTINGS).result_rows
    }
    cursor = board.cursor()
    cursor.row_factory = None
    rows = [
        (*row, version, 0)
        for row in cursor.execute(_COMMITS_SQL)
        if known.pop(row[0], row) != row[1]
    ]
    rows += [(hash_, None, 0, None, None, version, 1) for hash_ in known]
    if rows:
        client.insert("commits", rows, column_names=[*_COMMIT_NAMES, "version", "is_deleted"])
    return len(rows)


# ClickHouse fills them from inserts into other tables.
_SUMS = ("run_break_kinds", "run_cause_kinds", "run_rerecording_kinds", "run_issue_kinds")
_SWEPT_AT_ONCE = 5_000  # numbers per statement
_WORTH_IT = 20  # a month is rewritten for a twentieth of its rows
_DELETE = {"lightweight_deletes_sync": 2}


def delete_unused_rollups(client: Client) -> int:
    """Delete unreferenced roll-ups; return their number. Nothing may be published concurrently."""
    row_count = 0
    for table in (f"{table}_rows" for table in (*ROLLUPS, *_SUMS)):
        sql = f"""
        select month, groupUniqArrayIf(pub, is_dead), countIf(is_dead) as dead_count
        from (select month, pub, pub not in (select pub from runs final) as is_dead from {table})
        group by month
        having dead_count * {_WORTH_IT} >= count()
        """  # noqa: S608  own names only
        for month, pubs, count in client.query(sql, settings=SETTINGS).result_rows:
            for start in range(0, len(pubs), _SWEPT_AT_ONCE):
                partition = f"{table} in partition {int(month)}"
                values = {"pubs": pubs[start : start + _SWEPT_AT_ONCE]}
                client.command(
                    f"delete from {partition} where pub in {{pubs:Array(Int64)}}",  # noqa: S608 - our own names
                    values,
                    settings=_DELETE,
                )
            row_count += count
    return row_count
