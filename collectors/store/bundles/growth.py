"""Replace runs by a bundle's copy if that has more of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from compileboard.collectors.store.dashboard.trash import database_path, put_back_rows
from compileboard.collectors.store.sealed.files import open_workplace
from compileboard.collectors.store.sealed.reopening import delete_at_once, unpack_current
from compileboard.collectors.store.sealed.rows import DETAIL, ROLLUPS, get_sealed_run

_RUN = "run_id = :run_id"
# Not what its import adds: its end
_OF_PROCESS = "process_id in (select id from processes where run_id = :run_id)"
# What a run's recording consists of, in the order of its keys. The last column grows: a log that is
# read further, a text that was left out at first, a model that is measured again.
RECORDED = tuple(
    f"select {keys}, {state} from {table} where {where} order by {keys}"  # noqa: S608 - our own names
    for table, keys, state, where in (
        ("processes", "id", "0", _RUN),
        ("events", "process_id, sequence", "0", _OF_PROCESS),
        ("artifacts", "process_id, sequence", "state = 'kept'", _OF_PROCESS),
        ("logs", "process_id", "end_offset_bytes", _RUN),
        ("logs", "process_id", "not redacted", _RUN),
        ("trace_files", "name", "size_bytes", _RUN),
        ("trace_pieces", "name, position", "0", _RUN),
        ("result_files", "content_hash", "0", _RUN),
        ("results", "series_id, experiment", "time_us", _RUN),
        ("repros", "id", "0", _RUN),
    )
)
_REPLACED = (
    "processes",
    "run_rejects",
    "result_files",
    "run_source_excerpts",
    "run_totals",
    "repros",
)
_WITH_THEM = ("process_configs", "logs", "log_rejects", "repro_storages", "repro_results")
_ENDS = (
    "state",
    "ended_us",
    "heartbeat_us",
    "exit_code",
    "signal",
)  # of the run, as the longer recording has them


class RunGrowth(NamedTuple):
    state: str  # known | grown | apart
    event_count: int


@dataclass(frozen=True)
class RunContents:
    process_count: int
    event_count: int
    kept_text_count: int
    log_bytes: int
    result_file_count: int
    result_count: int
    newest_result_us: int
    repro_count: int
    trial_count: int


_CONTENTS = f"""
select
  (select count(*) from processes where {_RUN}) as process_count,
  (select count(*) from events where {_OF_PROCESS}) as event_count,
  (select count(*) from artifacts where {_RUN} and state = 'kept') as kept_text_count,
  (select coalesce(sum(end_offset_bytes), 0) from logs where {_RUN}) as log_bytes,
  (select count(*) from result_files where {_RUN}) as result_file_count,
  (select count(*) from results where {_RUN}) as result_count,
  (select coalesce(max(time_us), 0) from results where {_RUN}) as newest_result_us,
  (select count(*) from repros where {_RUN}) as repro_count,
  (select count(*) from trials where {_RUN}) as trial_count
from runs
where id = :run_id
"""  # noqa: S608 - our own names


def count_contents(reader: sqlite3.Connection, run_id: str) -> RunContents | None:
    row = reader.execute(_CONTENTS, {"run_id": run_id}).fetchone()
    return RunContents(**dict(row)) if row else None


def find_growth(
    connection: sqlite3.Connection, bundle: sqlite3.Connection, run_id: str
) -> RunGrowth:
    """Return `known` if a bundle has no more of a run than the database, `grown` if it has all and
    more.

    `apart` if each lacks something, or the run is pruned or being recorded. Raises StoreError if a
    sealed run's file is damaged or missing.
    """
    key = {"run_id": run_id}
    with _open_detail(connection, run_id) as detail:
        has_more_here = has_more_there = False
        for statement in RECORDED:
            here, there = _compare(detail.execute(statement, key), bundle.execute(statement, key))
            has_more_here, has_more_there = has_more_here or here, has_more_there or there
        (event_count,) = detail.execute(f"select count(*) from events where {_RUN}", key).fetchone()  # noqa: S608 - our own names
    trials = {row[0] for row in bundle.execute(f"select id from trials where {_RUN}", key)}  # noqa: S608 - our own names
    has_more_there |= not trials <= {row[0] for row in connection.execute("select id from trials")}
    if not has_more_there:
        return RunGrowth("known", event_count)
    is_fixed = connection.execute(
        """
        select 1
        from runs
        where id = :run_id
          and (state = 'running' or exists (select 1 from pruned_runs where run_id = :run_id))
        """,
        key,
    ).fetchone()
    return RunGrowth("apart" if has_more_here or is_fixed else "grown", event_count)


@contextmanager
def _open_detail(connection: sqlite3.Connection, run_id: str) -> Iterator[sqlite3.Connection]:
    sealed = get_sealed_run(connection, run_id)
    if sealed is None:
        yield connection
        return
    database = database_path(connection)
    with open_workplace(database) as folder:
        unpack_current(database, sealed.file, folder / "run.db")
        with closing(
            sqlite3.connect(f"{(folder / 'run.db').as_uri()}?mode=ro&immutable=1", uri=True)
        ) as file:
            yield file


def _compare(here: Iterable[Sequence[Any]], there: Iterable[Sequence[Any]]) -> tuple[bool, bool]:
    ours, theirs = map(tuple, here), map(tuple, there)
    our_row, their_row = next(ours, None), next(theirs, None)
    has_more_here = has_more_there = False
    while our_row is not None or their_row is not None:
        our_key, their_key = our_row and our_row[:-1], their_row and their_row[:-1]
        if our_row is not None and their_row is not None and our_key == their_key:
            has_more_here |= our_row[-1] > their_row[-1]
            has_more_there |= our_row[-1] < their_row[-1]
        is_ours = our_key is not None and (their_key is None or our_key <= their_key)
        is_theirs = their_key is not None and (our_key is None or their_key <= our_key)
        has_more_here |= not is_theirs
        has_more_there |= not is_ours
        our_row = next(ours, None) if is_ours else our_row
        their_row = next(theirs, None) if is_theirs else their_row
    return has_more_here, has_more_there


def grow_run(
    connection: sqlite3.Connection,
    bundle: sqlite3.Connection,
    run_id: str,
    present: Collection[str],
) -> None:
    """Replace a run's rows by the bundle's, in the caller's transaction.

    Links to runs that are not `present` are dropped. User notes, the name and answers about repros
    are kept. The run must be indexed again for search.
    """
    key = {"run_id": run_id}
    connection.execute(
        "delete from sealed_runs where run_id = :run_id", key
    )  # the bundle has all that its file has
    connection.execute("pragma defer_foreign_keys = on")
    answers = connection.execute(
        (
            "select * from repro_results where repro_id in (select id from repros where run_id = "
            ":run_id)"
        ),
        key,
    ).fetchall()
    delete_at_once(connection, run_id)
    for table in _REPLACED:
        connection.execute(f"delete from {table} where {_RUN}", key)  # noqa: S608 - our own names
    put_back_rows(
        bundle, connection, run_id, {*DETAIL, *ROLLUPS, *_REPLACED, *_WITH_THEM}, is_own=False
    )
    for answer in answers:
        _put_back_answer(connection, dict(answer))
    _update_run(connection, bundle, key, present)
    connection.execute("delete from search_runs where run_id = :run_id", key)


def _put_back_answer(connection: sqlite3.Connection, answer: dict[str, Any]) -> None:
    columns = [name for name in answer if name != "id"]
    connection.execute(
        f"""
        insert into repro_results ({", ".join(columns)})
        select {", ".join(f":{name}" for name in columns)}
        where not exists (
          select 1
          from repro_results
          where repro_id = :repro_id and command = :command and started_us = :started_us
        )
        """,  # noqa: S608 - our own names
        answer,
    )


def _update_run(
    connection: sqlite3.Connection,
    bundle: sqlite3.Connection,
    key: dict[str, str],
    present: Collection[str],
) -> None:
    run = dict(bundle.execute("select * from runs where id = :run_id", key).fetchone())
    columns = [name for name in run if name not in ("id", "pub")]
    changes = [
        f"{name} = :{name}" if name in _ENDS else f"{name} = coalesce({name}, :{name})"
        for name in columns
    ]
    connection.execute(f"update runs set {', '.join(changes)} where id = :id", run)  # noqa: S608 - our own names
    for statement, table in (
        ("select * from run_tags where run_id = :run_id", "run_tags"),
        ("select * from trials where run_id = :run_id", "trials"),
    ):
        for row in bundle.execute(statement, key):
            values = dict(row)
            for name in {"base_run_id", "new_run_id"} & values.keys():
                values[name] = values[name] if values[name] in present else None
            marks = ", ".join(f":{name}" for name in values)
            connection.execute(
                f"insert or ignore into {table} ({', '.join(values)}) values ({marks})",  # noqa: S608 - our own names
                values,
            )
