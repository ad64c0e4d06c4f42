"""Prune old runs: delete their detail and keep the data that compares runs.

The run's row, tags, notes, totals, roll-ups, results, summaries, processes, configuration, repros
and trials are kept. The rest is deleted, with unshared texts, in short transactions so that others
can write. The run is marked first: nothing more is recorded, and the next prune finishes one that
was killed. A sealed run's file is rewritten.
"""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.store.connection import (
    checkpoint,
    has_row,
    open_writer,
    read_value,
    write_transaction,
)
from compileboard.collectors.store.reopening import unpack_current
from compileboard.collectors.store.run_rows import (
    DETAIL,
    list_own_rows,
    order_tables,
    read_tables,
)
from compileboard.collectors.store.runs import NEXT, publish_run
from compileboard.collectors.store.sealed_files import (
    RunFileUnavailable,
    get_sealed_run,
    name_run_file,
    open_workplace,
    pack_run_file,
    remove_run_files,
)
from compileboard.collectors.store.search import index_run, remove_run_words
from compileboard.collectors.store.trash import (
    DELETE_TEXT,
    UNUSED_TEXTS,
    database_path,
    list_trashed_text_ids,
)

ROWS_AT_ONCE = 5000
PIECES_AT_ONCE = 16  # Pieces of a trace log have 1 MiB each before compression.
TEXTS_AT_ONCE = 500
CHECKPOINT_EVERY = 50  # transactions

_CANDIDATES = """
select r.id, coalesce(a.title, r.name) as name, r.suite, r.started_us, p.pruned_us, s.size_bytes
from runs as r
left join run_annotations as a on a.run_id = r.id
left join sealed_runs as s on s.run_id = r.id
left join pruned_runs as p on p.run_id = r.id
where r.started_us < :before_us
  and (:suite is null or r.suite = :suite)
  and (p.run_id is null or p.deleted_bytes is null)
  and not (r.state = 'running' and r.heartbeat_us >= :alive_us)
  and coalesce(a.pinned, 0) = 0
  and r.id not in (select run_id from baselines where run_id is not null)
  and r.id not in (
    select value
    from incidents as i
    left join series_changes as c on c.incident_id = i.id
    join json_each(json_array(
      i.last_good_run_id, i.first_bad_run_id, c.before_run_id, c.first_run_id, c.low_run_id,
      c.high_run_id
    ))
    where i.state in ('open', 'unconfirmed') and i.status <> 'ignored' and value is not null
  )
order by r.started_us, r.id
"""
_SIZE = """
select
  (select coalesce(sum(length(body)), 0) from events where run_id = :run_id)
  + (select coalesce(sum(length(body)), 0) from trace_pieces where run_id = :run_id)
  + (select coalesce(sum(length(body)), 0) from payloads where id in (
      select payload_id from artifacts where run_id = :run_id
      union
      select s.payload_id from lanes as l join spans as s on s.lane_id = l.id
      where l.run_id = :run_id and s.payload_id is not null
    ))
"""


@dataclass(frozen=True)
class PruneRule:
    before_us: int
    suite: str | None = None
    max_bytes: int | None = None


@dataclass(frozen=True)
class PrunedRun:
    id: str
    name: str
    suite: str | None
    started_us: int
    detail_bytes: int


def list_prunable(
    connection: sqlite3.Connection, rule: PruneRule, alive_us: int
) -> Iterator[PrunedRun]:
    """Yield the runs to prune, oldest first, with the expected gain.

    Pinned runs, those of baselines and open incidents, and those active since `alive_us` are kept.
    """
    values = {"before_us": rule.before_us, "suite": rule.suite, "alive_us": alive_us}
    used_bytes = measure_used(connection)
    for row in connection.execute(_CANDIDATES, values).fetchall():
        if rule.max_bytes is not None and used_bytes <= rule.max_bytes:
            return
        key = {"run_id": row["id"]}
        detail_bytes = row["size_bytes"] or int(read_value(connection, _SIZE, key))
        used_bytes -= detail_bytes
        yield PrunedRun(row["id"], row["name"], row["suite"], row["started_us"], detail_bytes)


def prune_runs(
    connection: sqlite3.Connection,
    rule: PruneRule,
    alive_us: int,
    *,
    now_us: int | None = None,
    problems: list[str] | None = None,
) -> Iterator[PrunedRun]:
    """Prune runs, yielding each when done, then delete unused texts.

    A size limit is compared with the actual size after each run. Runs with unusable files are
    skipped and listed in `problems`.
    """
    now_us = read_clock_us() if now_us is None else now_us
    values = {"before_us": rule.before_us, "suite": rule.suite, "alive_us": alive_us}
    trashed = list_trashed_text_ids(database_path(connection))
    for row in connection.execute(_CANDIDATES, values).fetchall():
        if (
            rule.max_bytes is not None
            and row["pruned_us"] is None
            and measure_used(connection) <= rule.max_bytes
        ):
            break
        try:
            detail_bytes = _prune_anywhere(connection, row["id"], trashed, now_us)
        except RunFileUnavailable as error:  # the others are pruned all the same
            if problems is not None:
                problems.append(f"run {row['id']} is not pruned: {error}")
            continue
        if detail_bytes is None:
            continue  # something new of it came
        yield PrunedRun(row["id"], row["name"], row["suite"], row["started_us"], detail_bytes)
    delete_unused_texts(connection, WriteSteps(connection), trashed)
    checkpoint(connection)


def measure_used(connection: sqlite3.Connection) -> int:
    """Return the bytes in used pages and in the files of sealed runs."""
    file_bytes = read_value(connection, "select coalesce(sum(size_bytes), 0) from sealed_runs")
    page_bytes = read_value(connection, "pragma page_count") * read_value(
        connection, "pragma page_size"
    )
    return int(page_bytes + file_bytes) - measure_free(connection)


def measure_free(connection: sqlite3.Connection) -> int:
    """Return the bytes in free pages, which `vacuum` returns to the disk."""
    page_count = read_value(connection, "pragma freelist_count")
    return int(page_count * read_value(connection, "pragma page_size"))


def vacuum(connection: sqlite3.Connection) -> None:
    """Rebuild the database without free pages, blocking other writers."""
    connection.execute("vacuum")
    checkpoint(connection)


class WriteSteps:
    """Short transactions with a pause after each, `pause` times as long, so that others can write.

    `check` is called in each transaction; it raises if the rest must not be done any more.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        check: Callable[[], None] = lambda: None,
        *,
        pause: float = 0.25,
        checkpoint_every: int = CHECKPOINT_EVERY,
    ) -> None:
        self._connection = connection
        self._check = check
        self._pause = pause
        self._checkpoint_every = checkpoint_every
        self._count = 0

    def run(self, work: Callable[[], int]) -> int:
        began_s = time.monotonic()
        with write_transaction(self._connection):
            self._check()
            count = work()
        self._count += 1
        if self._count % self._checkpoint_every == 0:
            checkpoint(self._connection)
        time.sleep(0.001 + self._pause * (time.monotonic() - began_s))
        return count

    def delete(self, tables: Iterable[tuple[str, str]], values: dict[str, object]) -> None:
        pending = deque(tables)

        def work() -> int:
            left = ROWS_AT_ONCE
            while pending and left:
                table, where = pending[0]
                statement = (
                    f"delete from {table} where rowid in (select rowid from {table} where "  # noqa: S608 - our own names
                    f"{where} limit {left})"
                )
                count = self._connection.execute(statement, values).rowcount
                if count < left:
                    pending.popleft()
                left -= count
            return ROWS_AT_ONCE - left

        while pending:
            self.run(work)


class _Sealed(Exception):
    pass


def _prune_anywhere(
    connection: sqlite3.Connection, run_id: str, trashed: Sequence[int], now_us: int
) -> int | None:
    def check() -> None:
        if get_sealed_run(connection, run_id) is not None:
            raise _Sealed

    detail_bytes = int(read_value(connection, _SIZE, {"run_id": run_id}))
    try:
        _prune_run(connection, WriteSteps(connection, check), run_id, trashed, now_us, detail_bytes)
    except _Sealed:
        return _prune_file(connection, run_id, now_us)
    return detail_bytes


def _prune_file(connection: sqlite3.Connection, run_id: str, now_us: int) -> int | None:
    database, key = database_path(connection), {"run_id": run_id}
    sealed = get_sealed_run(connection, run_id)
    if sealed is None:
        return None
    with open_workplace(database) as folder:
        path = folder / "run.db"
        unpack_current(database, sealed.file, path)
        with closing(open_writer(path, create=False)) as file:
            _prune_run(file, WriteSteps(file), run_id, (), now_us, 0)
            index_run(file, run_id)
            checkpoint(file)
            file.execute("pragma journal_mode = delete")
            file.execute("vacuum")
        with write_transaction(connection):
            pub = read_value(connection, NEXT)  # a name that no file of the run had
        new = pack_run_file(database, path, name_run_file(run_id, pub))
    deleted_bytes = max(sealed.file.size_bytes - new.size_bytes, 0)
    with write_transaction(connection):
        is_current = get_sealed_run(connection, run_id) == sealed
        if is_current:
            connection.execute(_REPLACE_FILE, {**key, **new._asdict()})
            connection.execute(
                (
                    "insert or replace into pruned_runs (run_id, pruned_us, deleted_bytes) values "
                    "(?, ?, ?)"
                ),
                (run_id, now_us, deleted_bytes),
            )
            connection.execute(_DELETE_STORAGES, key)
            publish_run(connection, run_id)
    remove_run_files(database, run_id, named=new.name if is_current else sealed.file.name)
    return deleted_bytes if is_current else None


def _prune_run(
    connection: sqlite3.Connection,
    steps: WriteSteps,
    run_id: str,
    trashed: Sequence[int],
    now_us: int,
    detail_bytes: int,
) -> None:
    key: dict[str, object] = {"run_id": run_id}
    text_ids = list_texts(connection, run_id)

    def mark() -> int:
        connection.execute(
            "insert or ignore into pruned_runs (run_id, pruned_us) values (:run_id, :now_us)",
            {**key, "now_us": now_us},
        )
        connection.execute("update repros set compile_key = null where run_id = :run_id", key)
        connection.execute(_DELETE_STORAGES, key)
        return remove_run_words(connection, run_id)

    steps.run(mark)
    delete_detail(connection, steps, run_id)
    delete_texts(connection, steps, text_ids, trashed)

    def finish() -> int:
        connection.execute(
            "update pruned_runs set deleted_bytes = :detail_bytes where run_id = :run_id",
            {**key, "detail_bytes": detail_bytes},
        )
        publish_run(connection, run_id)  # what was remembered of it is read anew
        return 1

    steps.run(finish)


def delete_detail(connection: sqlite3.Connection, steps: WriteSteps, run_id: str) -> None:
    key: dict[str, object] = {"run_id": run_id}
    if has_row(connection, "select 1 from trace_files where run_id = :run_id limit 1", key):
        while steps.run(lambda: connection.execute(_DELETE_PIECES, key).rowcount) >= PIECES_AT_ONCE:
            pass
        steps.run(
            lambda: (
                connection.execute("delete from trace_files where run_id = :run_id", key).rowcount
            )
        )
    depth = read_value(connection, "select max(depth) from stack_nodes where run_id = :run_id", key)
    levels = range(
        -1 if depth is None else depth, -1, -1
    )  # the innermost first: none has children then
    stacks = [("stack_nodes", f"run_id = :run_id and depth = {level}") for level in levels]
    tables = read_tables(connection)
    own = list_own_rows(tables)
    # Those that point to others first; rows without a rowid go with what they belong to.
    detail = [
        (name, own[name])
        for name in reversed(order_tables(tables, DETAIL))
        if tables[name].has_rowid and name != "stack_nodes"
    ]
    steps.delete((*detail, *stacks), key)


def list_texts(connection: sqlite3.Connection, run_id: str) -> list[int]:
    return [row[0] for row in connection.execute(_TEXTS_OF_RUN, {"run_id": run_id})]


def delete_texts(
    connection: sqlite3.Connection, steps: WriteSteps, ids: Sequence[int], trashed: Sequence[int]
) -> None:
    pending = sorted(set(ids) - set(trashed))
    for start in range(0, len(pending), TEXTS_AT_ONCE):
        values = [(text_id,) for text_id in pending[start : start + TEXTS_AT_ONCE]]
        steps.run(lambda values=values: connection.executemany(DELETE_TEXT, values).rowcount)  # type: ignore[misc]


def delete_unused_texts(
    connection: sqlite3.Connection, steps: WriteSteps, trashed: Sequence[int]
) -> None:
    delete_texts(
        connection, steps, [row["id"] for row in connection.execute(UNUSED_TEXTS)], trashed
    )


_TEXTS_OF_RUN = """
select payload_id from artifacts where run_id = :run_id and payload_id is not null
union
select s.payload_id from lanes as l join spans as s on s.lane_id = l.id
where l.run_id = :run_id and s.payload_id is not null
"""
_DELETE_STORAGES = (
    "delete from repro_storages where repro_id in (select id from repros where run_id = :run_id)"
)
_REPLACE_FILE = """
update sealed_runs set
  file_name = :name, digest = :digest, size_bytes = :size_bytes, unpacked_bytes = :unpacked_bytes
where run_id = :run_id
"""
_DELETE_PIECES = f"""
delete from trace_pieces
where (run_id, name, position) in (
  select run_id, name, position from trace_pieces where run_id = :run_id limit {PIECES_AT_ONCE}
)
"""  # noqa: S608 - our own names
