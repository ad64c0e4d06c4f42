"""Replace the ids of a database of before version 8 by ids of their content, wherever one points to another.

It runs in the caller's transaction, with foreign keys off: on a whole database, or on what the trash has of a run.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

from compileboard.collectors.contract.events import Recompiled, load_event
from compileboard.collectors.contract.fingerprints import content_digest, content_id, format_id
from compileboard.collectors.store.codec import pack, unpack
from compileboard.collectors.store.errors import StoreError
from compileboard.collectors.store.rollups.totals import CAUSES

SERIES = "suite, model, mode, dtype, device, hardware, backend, dynamic, batch_size, world_size"
THINGS = {"function": "functions", "break": "distinct_breaks", "cause": "recompile_causes", "series": "series"}
REFERRING = {
    "function": (
        *("run_functions.function_id", "compiles.function_id", "compilations.function_id", "graph_breaks.function_id"),
        *("distinct_breaks.function_id", "recompile_causes.function_id", "recompiles.function_id"),
        "failures.function_id",
    ),
    "break": ("run_breaks.distinct_id", "graph_breaks.distinct_id"),
    "cause": ("guard_failures.cause_id",),  # and run_causes, whose rows may become one
    "series": ("results.series_id",),
}
DOCUMENTS = {"function": "function", "graph_break": "break"}  # of the search index


def give_content_ids(connection: sqlite3.Connection) -> None:
    """Replace the numbers of functions, distinct breaks, recompile causes and series.

    Raises: StoreError, before anything is committed, if a count or a sum is another one afterwards.
    """
    tables = {row[0] for row in connection.execute("select name from sqlite_schema where type = 'table'")}
    connection.execute("drop table if exists temp.new_ids")
    connection.execute(
        "create temp table new_ids (kind, old_id integer, id integer, fingerprint, primary key (kind, old_id))"
    )
    for kind, things in (("function", _functions), ("break", _breaks), ("series", _series), ("cause", _causes)):
        if THINGS[kind] in tables:
            rows = [(kind, *thing) for thing in things(connection)]
            connection.executemany("insert into temp.new_ids values (?, ?, ?, ?)", rows)
    old_fingerprints = _list_fingerprints(connection) if "old_ids" in tables else {}
    before = _measure(connection, tables)
    if "recompile_causes" in tables:
        _join_causes(connection)
    for kind, columns in REFERRING.items():
        for table, column in (name.split(".") for name in columns):
            if table in tables:
                _replace(connection, table, column, kind)
        if THINGS[kind] in tables:
            _replace(connection, THINGS[kind], "id", kind)
    if _measure(connection, tables) != before:
        raise StoreError("the new ids do not add up to what was stored before; nothing was changed. Report this.")
    if "old_ids" in tables:
        _rename_elsewhere(connection)
        _rename_in_baselines(connection, old_fingerprints)
    connection.execute("drop table temp.new_ids")


def _functions(connection: sqlite3.Connection) -> Iterator[tuple[int, int, None]]:
    for number, file, name in connection.execute("select id, file, name from functions"):
        yield number, content_id("function", file, name), None


def _breaks(connection: sqlite3.Connection) -> Iterator[tuple[int, int, None]]:
    for number, fingerprint in connection.execute("select id, fingerprint from distinct_breaks"):
        yield number, content_id("break", fingerprint), None


def _series(connection: sqlite3.Connection) -> Iterator[tuple[int, int, None]]:
    for number, *content in connection.execute(f"select id, {SERIES} from series"):  # noqa: S608
        yield number, content_id("series", *content), None


def _causes(connection: sqlite3.Connection) -> Iterator[tuple[int, int, str]]:
    """Yield causes by their guard's fingerprint, which only the recompile events have."""
    causes = connection.execute(
        """
        select recompile_causes.id, fingerprint, function_id, file, name
        from recompile_causes
        left join functions on functions.id = function_id
        """
    ).fetchall()
    for cause in causes:
        content = ("cause", _find_guard(connection, cause), cause["file"], cause["name"])
        yield cause["id"], content_id(*content), content_digest(*content)[:32]


def _find_guard(connection: sqlite3.Connection, cause: sqlite3.Row) -> str:
    """Return the fingerprint of a cause's guard; its own one of before where no event has it."""
    row = connection.execute(
        """
        select position, body
        from guard_failures
        join recompiles on recompiles.id = recompile_id
        join events on events.process_id = recompiles.process_id and events.sequence = recompiles.sequence
        where cause_id = :id
        limit 1
        """,
        {"id": cause["id"]},
    ).fetchone()
    try:
        event = load_event(unpack(row["body"])) if row else None
    except ValueError:  # damaged on disk
        event = None
    guards = [guard.fingerprint for guard in event.guards] if isinstance(event, Recompiled) else []
    for guard in guards:
        if hashlib.sha256(f"{guard}\n{cause['function_id']}".encode()).hexdigest()[:32] == cause["fingerprint"]:
            return guard
    return guards[row["position"]] if row and row["position"] < len(guards) else str(cause["fingerprint"])


def _join_causes(connection: sqlite3.Connection) -> None:
    """Let causes that have one content be one, with the sum of what they came to in each run."""
    sums = ", ".join(f"sum({column}) as {column}" for column in CAUSES.columns)
    statements = (
        "drop table if exists temp.joined_causes",
        f"""
        create temp table joined_causes as
        select run_id, new_ids.id as cause_id, {sums}
        from run_causes
        join temp.new_ids as new_ids on kind = 'cause' and old_id = cause_id
        group by run_id, new_ids.id
        """,  # noqa: S608 - our own column names
        "delete from run_causes where cause_id in (select old_id from temp.new_ids where kind = 'cause')",
        f"""
        insert into run_causes (run_id, cause_id, {", ".join(CAUSES.columns)})
        select run_id, cause_id, {", ".join(CAUSES.columns)}
        from temp.joined_causes
        """,  # noqa: S608
        "drop table temp.joined_causes",
        """
        update recompile_causes
        set fingerprint = (select fingerprint from temp.new_ids where kind = 'cause' and old_id = recompile_causes.id)
        where id in (select min(old_id) from temp.new_ids where kind = 'cause' group by id)
        """,
        """
        delete from recompile_causes
        where id not in (select min(old_id) from temp.new_ids where kind = 'cause' group by id)
        """,
    )
    for statement in statements:
        connection.execute(statement)


def _replace(connection: sqlite3.Connection, table: str, column: str, kind: str) -> None:
    connection.execute(
        f"""
        update {table}
        set {column} = (select id from temp.new_ids where kind = :kind and old_id = {table}.{column})
        where {column} in (select old_id from temp.new_ids where kind = :kind)
        """,  # noqa: S608 - our own names
        {"kind": kind},
    )


def _measure(connection: sqlite3.Connection, tables: set[str]) -> dict[str, tuple[Any, ...]]:
    """Count what points to things, how many different ones, and sum up what causes came to."""
    measured = {}
    for columns in REFERRING.values():
        for table, column in (name.split(".") for name in columns):
            if table in tables and table != "recompile_causes":
                different = "0" if column == "cause_id" else f"count(distinct {column})"
                sql = f"select count(*), count({column}), {different} from {table}"  # noqa: S608
                measured[f"{table}.{column}"] = tuple(connection.execute(sql).fetchone())
    if "run_causes" in tables:
        sums = ", ".join(f"sum({column})" for column in CAUSES.columns)
        rows = connection.execute(f"select run_id, {sums} from run_causes group by run_id order by run_id")  # noqa: S608
        measured["run_causes"] = tuple(tuple(row) for row in rows)
    return measured


def _rename_elsewhere(connection: sqlite3.Connection) -> None:
    """Note the old numbers for old addresses; follow them into the search index, findings and baselines."""
    in_addresses = "select kind, old_id, id from temp.new_ids where kind <> 'series'"
    connection.execute(f"insert into old_ids (kind, old_id, id) {in_addresses}")
    for document, kind in DOCUMENTS.items():
        connection.execute(
            """
            update search_documents
            set ref_id = (select id from temp.new_ids where kind = :kind and old_id = ref_id)
            where kind = :document and ref_id in (select old_id from temp.new_ids where kind = :kind)
            """,
            {"kind": kind, "document": document},
        )
    ids = {(row["kind"], row["old_id"]): row["id"] for row in connection.execute("select * from temp.new_ids")}
    for finding in connection.execute("select id, evidence from findings").fetchall():
        evidence = json.loads(finding["evidence"])
        for cause in evidence.get("causes", ()):
            for kind in ("break", "cause"):
                if (number := cause.get(f"{kind}_id")) is not None:
                    cause[f"{kind}_id"] = format_id(ids[kind, number]) if (kind, number) in ids else None
        text = json.dumps(evidence, ensure_ascii=False, separators=(",", ":"))
        connection.execute("update findings set evidence = ? where id = ?", (text, finding["id"]))


def _list_fingerprints(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(
        connection.execute(
            """
            select recompile_causes.fingerprint, new_ids.fingerprint
            from recompile_causes
            join temp.new_ids as new_ids on kind = 'cause' and old_id = recompile_causes.id
            """
        ).fetchall()
    )


def _rename_in_baselines(connection: sqlite3.Connection, fingerprints: dict[str, str]) -> None:
    """Follow the causes' fingerprints into baselines; of a cause that no run has any more, the old one stays."""
    for baseline in connection.execute("select name, body from baselines").fetchall():
        body = json.loads(unpack(baseline["body"]))
        for cause in body.get("causes") or ():
            cause["fingerprint"] = fingerprints.get(cause["fingerprint"], cause["fingerprint"])
        values = (pack(json.dumps(body, separators=(",", ":")), primed=False), baseline["name"])
        connection.execute("update baselines set body = ? where name = ?", values)
