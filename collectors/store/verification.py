"""Verify a database or backup: pages, references, roll-ups, deleted and sealed runs, texts."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from compileboard.collectors.store.backup import (
    DATABASE,
    TRASH,
    is_backup,
    list_changed_files,
    read_manifest,
)
from compileboard.collectors.store.codec import unpack_bytes
from compileboard.collectors.store.connection import (
    DATABASE_VERSION,
    explain,
    open_immutable,
    open_reader,
    read_value,
    set_cache,
)
from compileboard.collectors.store.reopening import unpack_current
from compileboard.collectors.store.results import merge_results, read_measured
from compileboard.collectors.store.rollups import NUMBERS, OF_SUITE_SQL, SET, sum_up
from compileboard.collectors.store.sealed_files import (
    RunFileUnavailable,
    SealedRun,
    describe_problem,
    get_sealed_run,
    list_sealed_runs,
)
from compileboard.collectors.store.trash import find_sealed_run, trash_path

MAX_EXAMPLES = 5
SUITES_SQL = """
select distinct x.run_id, s.suite
from results as x
join series as s on s.id = x.series_id
order by x.run_id, s.suite
"""


class Recount(NamedTuple):
    table: str
    key: tuple[str, ...]
    counted: str  # a select with the key and every counter
    counters: tuple[str, ...]


# Each table once: its counters, by run; what two tables count is their sum.
_FORWARD = "kind = 'forward'"
RUN_TOTALS = {
    "compiles": {
        "compile_count": "count(*)",
        "failure_count": """sum(outcome = 'failed' and not exists (
          select 1 from compilations as k where k.compile_key = compiles.id and k.kind = 'forward'
        ))""",
    },
    "compilations": {
        "record_count": "count(*)",
        "recompile_limit_count": f"sum({_FORWARD} and outcome = 'recompile_limit')",
        "failure_count": f"sum({_FORWARD} and outcome = 'failed')",
        "skipped_frame_count": f"sum({_FORWARD} and outcome = 'skipped')",
        "restart_count": "sum(restart_count)",
        "compile_us": "sum(case when kind <> 'runtime' then duration_us end)",
    },
    "graph_breaks": {"graph_break_count": "count(*)"},
    "recompiles": {"recompile_count": "count(*)"},
    "failures": {"failure_count": "sum(phase <> 'compile')"},
    "cache_lookups": {
        f"cache_{result}_count": f"sum(result = '{result}')" for result in ("hit", "miss", "bypass")
    },
    "cudagraph_skips": {"cudagraph_skip_count": "count(*)"},
    "cudagraphs": {
        "cudagraph_recording_count": "sum(stage = 'recording')",
        "cudagraph_rerecording_count": "count(status)",
    },
    "processes": {"process_count": "count(*)"},
    "results": {"result_count": "count(*)", "failed_result_count": "sum(status = 'failed')"},
}
_TOTAL_NAMES = tuple(dict.fromkeys(name for counters in RUN_TOTALS.values() for name in counters))


def _count_totals() -> str:
    sums = [
        "left join (select run_id, "  # noqa: S608 - our own names
        f"{', '.join(f'{sql} as {name}' for name, sql in counters.items())} "
        f"from {table} group by run_id) as {table} on {table}.run_id = r.id"
        for table, counters in RUN_TOTALS.items()
    ]
    columns = []
    for name in _TOTAL_NAMES:
        parts = [
            f"coalesce({table}.{name}, 0)"
            for table, counters in RUN_TOTALS.items()
            if name in counters
        ]
        columns.append(f"{' + '.join(parts)} as {name}")
    return f"select r.id as run_id, {', '.join(columns)} from runs as r {' '.join(sums)}"  # noqa: S608 - our own names


RECOUNTS = (
    Recount(
        "run_totals",
        ("run_id",),
        _count_totals(),
        _TOTAL_NAMES,
    ),
    Recount(
        "run_breaks",
        ("run_id", "distinct_id"),
        (
            "select run_id, distinct_id, count(*) as break_count from graph_breaks group by "
            "run_id, distinct_id"
        ),
        ("break_count",),
    ),
    Recount(
        "run_causes",
        ("run_id", "cause_id"),
        """
        select run_id, cause_id, count(*) as recompile_count, sum(is_partial) as partial_count
        from recompiles
        where cause_id is not null
        group by run_id, cause_id
        """,
        ("recompile_count", "partial_count"),
    ),
    Recount(
        "run_rerecordings",
        ("run_id", "reason_id"),
        """
        select
          run_id, reason_id, count(*) as rerecording_count,
          coalesce(sum(duration_us), 0) as duration_us
        from cudagraphs
        where reason_id is not null
        group by run_id, reason_id
        """,
        ("rerecording_count", "duration_us"),
    ),
    Recount(
        "run_issues",
        ("run_id", "issue_id"),
        """
        select run_id, issue_id, count(*) as failure_count, sum(compile_us) as compile_us
        from (
          select run_id, issue_id, 0 as compile_us from failures where issue_id is not null
          union all
          select run_id, issue_id, coalesce(duration_us, 0) from compilations
            where issue_id is not null
        )
        group by run_id, issue_id
        """,
        ("failure_count", "compile_us"),
    ),
    Recount(
        "run_functions",
        ("run_id", "function_id"),
        """
        select
          run_id, function_id, sum(graph_break_count) as graph_break_count,
          sum(recompile_count) as recompile_count,
          sum(compile_us) as compile_us
        from (
          select run_id, function_id, 1 as graph_break_count, 0 as recompile_count,
          0 as compile_us from graph_breaks
          union all
          select run_id, function_id, 0, 1, 0 from recompiles
          union all
          select run_id, function_id, 0, 0, coalesce(duration_us, 0) from compilations
            where kind <> 'runtime'
        )
        group by run_id, function_id
        """,
        ("graph_break_count", "recompile_count", "compile_us"),
    ),
    Recount(
        "span_totals",
        ("lane_id", "name_id"),
        """
        select
          lane_id, name_id, count(*) as span_count, sum(instant) as instant_count,
          sum(instant = 0 and duration_us is not null) as ended_count,
          coalesce(sum(duration_us), 0) as total_us
        from spans
        group by lane_id, name_id
        """,
        ("span_count", "instant_count", "ended_count", "total_us"),
    ),
)
_ELSEWHERE = "(select run_id from pruned_runs union all select run_id from sealed_runs)"
_OF_PRUNED = {  # a pruned run has no lanes
    "span_totals": "and coalesce(t.lane_id, c.lane_id) not in (select id from lanes where "
    "run_id in "
    "(select run_id from sealed_runs))"
}


def list_differences(connection: sqlite3.Connection) -> Iterator[str]:
    """Describe differing roll-ups, at most five of each kind."""
    for recount in RECOUNTS:
        yield from _compare(connection, recount)
    yield from islice(_compare_summaries(connection), MAX_EXAMPLES)


def _compare(connection: sqlite3.Connection, recount: Recount) -> Iterator[str]:
    same_key = " and ".join(f"c.{name} = t.{name}" for name in recount.key)
    differs = " or ".join(
        f"coalesce(c.{name}, 0) <> coalesce(t.{name}, 0)" for name in recount.counters
    )
    keys = ", ".join(f"coalesce(t.{name}, c.{name}) as {name}" for name in recount.key)
    pairs = ", ".join(f"coalesce(t.{name}, 0), coalesce(c.{name}, 0)" for name in recount.counters)
    pruned = _OF_PRUNED.get(recount.table, f"and coalesce(t.run_id, c.run_id) not in {_ELSEWHERE}")
    # What belongs to no function or cause is in no roll-up.
    known = " and ".join(f"coalesce(t.{name}, c.{name}) is not null" for name in recount.key)
    sides = [("left join", "t", "c"), ("left join", "c", "t")]
    tables = {"t": recount.table, "c": "counted"}  # counted once for both sides
    statement = " union ".join(
        f"select {keys}, {pairs} from {tables[first]} as {first} {join} {tables[second]} as "  # noqa: S608 - our own names
        f"{second} on {same_key} "
        f"where ({differs}) and {known} {pruned}"
        for join, first, second in sides
    )
    statement = f"with counted as materialized ({recount.counted}) {statement}"
    for row in connection.execute(f"{statement} limit {MAX_EXAMPLES}"):
        values = list(row)
        key, numbers = values[: len(recount.key)], values[len(recount.key) :]
        changes = [
            f"{name} is {stored}, its rows come to {counted}"
            for name, stored, counted in zip(recount.counters, numbers[::2], numbers[1::2])
            if stored != counted
        ]
        yield f"{recount.table} of {', '.join(map(str, key))}: {'; '.join(changes)}"


def _compare_summaries(connection: sqlite3.Connection) -> Iterator[str]:
    columns = ("run_id", *SET, "definition", "time_us", *NUMBERS)
    for run_id, suite in connection.execute(SUITES_SQL).fetchall():
        key = {"run_id": run_id, "suite": suite}
        rows = merge_results(read_measured(connection.execute(OF_SUITE_SQL, key)))
        counted = {tuple(values[name] for name in columns) for values in sum_up(run_id, rows)}
        stored = {
            tuple(row)
            for row in connection.execute(
                (
                    f"select {', '.join(columns)} from run_summaries where run_id = :run_id and "  # noqa: S608 - our own names
                    "suite = :suite"
                ),
                key,
            )
        }
        if counted != stored:
            yield f"run_summaries of run {run_id}, suite {suite}: not what its results come to"


MAX_PROBLEMS = 20
CACHE_KIB = (
    64 << 10
)  # each row is looked up in every index: a third less CPU time, a quarter of the reads


class StoreCheck(NamedTuple):
    subject: str
    problems: tuple[str, ...] = ()
    skipped: str | None = None


def verify(
    path: str, *, texts: bool = False, progress: Callable[[str], None] = lambda subject: None
) -> Iterator[StoreCheck]:
    if is_backup(path):
        manifest = read_manifest(path)
        progress("files of the backup")
        changed = tuple(list_changed_files(path, manifest))
        yield StoreCheck("files of the backup", changed)
        database = os.path.join(path, DATABASE)
        if changed:  # whether such a database can be opened depends on the byte
            yield StoreCheck("database", skipped="the backup is not as it was written")
        else:
            yield from _verify_database(database, Path(path, TRASH), texts, progress)
    else:
        yield from _verify_database(path, trash_path(path, "").parent, texts, progress)


def _verify_database(
    path: str, trash: Path, texts: bool, progress: Callable[[str], None] = lambda subject: None
) -> Iterator[StoreCheck]:
    with closing(open_reader(path, allow_older=True)) as reader:
        set_cache(reader, CACHE_KIB)
        version = int(read_value(reader, "pragma user_version"))
        older, unread = None, None if texts else "--texts reads each against its digest"
        if version < DATABASE_VERSION:
            older = f"version {version}; `compileboard migrate` a copy to check them"
        checks: tuple[tuple[str, Iterator[str], str | None], ...] = (
            ("pages and indexes", _list_damage(reader), None),
            ("references", islice(_list_orphans(reader), MAX_PROBLEMS), None),
            ("roll-ups", list_differences(reader), older),
            ("deleted runs", _list_lost_trash(reader, path, trash), older),
            ("sealed runs", _list_damaged_runs(reader, path, texts), older),
            ("texts", islice(_list_damaged_texts(reader), MAX_PROBLEMS), unread),
        )
        try:
            for subject, problems, skipped in checks:
                if skipped is not None:
                    yield StoreCheck(subject, skipped=skipped)
                    continue
                progress(subject)
                yield StoreCheck(subject, tuple(problems))
        except sqlite3.DatabaseError as error:
            explained = explain(error, path)
            if "damaged" not in str(explained):
                raise explained from error
            yield StoreCheck("rest of the file", (str(explained),))


def _list_damage(reader: sqlite3.Connection) -> Iterator[str]:
    for (problem,) in reader.execute(f"pragma integrity_check({MAX_PROBLEMS})"):
        if problem != "ok":
            yield str(problem)


def _list_orphans(reader: sqlite3.Connection) -> Iterator[str]:
    for row in reader.execute("pragma foreign_key_check"):
        yield f"{row['table']}, row {row['rowid']}: points to no row of {row['parent']}"


def _list_lost_trash(reader: sqlite3.Connection, path: str, folder: Path) -> Iterator[str]:
    rows = reader.execute(
        "select run_id from removed_runs where expires_us is not null order by run_id"
    ).fetchall()
    for row in rows:
        file = folder / trash_path(path, row["run_id"]).name
        if not file.is_file():
            yield f"run {row['run_id']}: {file} is missing, it cannot be restored"
            continue
        try:
            with closing(open_immutable(file)) as deleted:
                state = read_value(deleted, "pragma quick_check(1)")
                sealed = find_sealed_run(deleted)
                problem = sealed and describe_problem(path, sealed.file)
                if problem:
                    yield f"run {row['run_id']}: it cannot be restored: {problem}"
        except sqlite3.DatabaseError as error:
            state = str(error)
        if state != "ok":
            yield f"run {row['run_id']}: {file} is damaged, it cannot be restored"


def _list_damaged_runs(reader: sqlite3.Connection, path: str, whole: bool) -> Iterator[str]:
    count = 0
    for sealed in list_sealed_runs(reader):
        problem = describe_problem(path, sealed.file)
        try:
            problems = (
                [problem] if problem else _list_run_problems(reader, path, sealed) if whole else []
            )
        except RunFileUnavailable as error:  # pruned or reopened meanwhile
            problems = [str(error)] if get_sealed_run(reader, sealed.run_id) == sealed else []
        yield from (f"run {sealed.run_id}: {problem}" for problem in problems)
        count += len(problems)
        if count >= MAX_PROBLEMS:
            return


def _list_run_problems(reader: sqlite3.Connection, path: str, sealed: SealedRun) -> list[str]:
    with TemporaryDirectory() as folder:
        file = Path(folder, "run.db")
        unpack_current(path, sealed.file, file)
        problems = [
            problem
            for check in _verify_database(str(file), Path(folder, TRASH), True)
            for problem in check.problems
        ]
        with closing(open_reader(file)) as run:
            query = "select * from run_totals where run_id = ?"
            totals = [
                tuple(source.execute(query, (sealed.run_id,)).fetchone())
                for source in (reader, run)
            ]
        return [
            *problems,
            *(["its totals are not those of its file"] if totals[0] != totals[1] else []),
        ]


def _list_damaged_texts(reader: sqlite3.Connection) -> Iterator[str]:
    for row in reader.execute("select id, digest, body from payloads"):
        try:
            digest = blake2b(unpack_bytes(row["body"]), digest_size=len(row["digest"])).digest()
        except ValueError:
            digest = b""
        if digest != row["digest"]:
            yield f"text {row['id']}: not what its digest says"
