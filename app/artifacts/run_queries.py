"""Artifacts: texts that torch logged under a name, such as graphs, generated code and guards."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

from compileboard.app.artifacts.artifact_labels import describe_name, describe_state
from compileboard.app.core.fields import (
    CompileId,
    CompileKey,
    Count,
    EventTime,
    Pid,
    ProcessId,
    Rank,
    RowId,
    RunId,
)
from compileboard.app.core.page import FilterError, Page
from compileboard.app.core.parameters import Parameter
from compileboard.app.core.rows import find_row, list_page, list_rows
from compileboard.app.core.schema import PRIVATE, Keywords, published
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.reading import read_json

# One per tensor that torch looked at, hundreds per compile: lists count them, and paging between
# texts skips them.
DESCRIPTIONS = ("describe_source", "describe_storage", "describe_tensor")
_NO_DESCRIPTION = "a.name not in ('describe_source', 'describe_storage', 'describe_tensor')"
# inductor names a file after a hash of its text, so the title differs for every text.
_HASHED = re.compile(r"c[a-z0-9]{50,52}(?:\.(\w+))?")

_COLUMNS = """
  a.id, a.run_id, a.process_id, a.sequence, coalesce(c.rank, p.rank) as rank, p.pid, a.compile_key,
  a.compile_id, c.generation, a.attempt, a.name, a.title, a.encoding, a.state, a.size_bytes, a.md5,
  a.time_us, a.metadata, a.envelope, a.stack_id
"""
_SOURCE = """
from artifacts as a
left join compiles as c on c.id = a.compile_key
left join processes as p on p.id = a.process_id
"""
_WANTED = """
  and (:name is null or a.name = :name)
  and (:text is null or instr(lower(coalesce(a.title, '') || ' ' || a.name), lower(:text)))
"""
RUN_SQL = f"""
select {_COLUMNS}
{_SOURCE}
where a.run_id = :run_id
  and (a.name, a.id) > (:after_name, :after_id)
  {_WANTED}
order by a.name, a.id
limit :limit
"""
COMPILE_SQL = f"""
select {_COLUMNS}
{_SOURCE}
where a.compile_key = :compile_key
  and a.run_id = :run_id
  and (a.sequence, a.id) > (:after_sequence, :after_id)
  {_WANTED}
order by a.sequence, a.id
limit :limit
"""
NAMED_SQL = f"""
select {_COLUMNS}
{_SOURCE}
where a.compile_key = :compile_key
  and a.name = :name
order by a.sequence, a.id
limit :limit
"""
TEXTS_SQL = f"""
select {_COLUMNS}
{_SOURCE}
where a.compile_key = :compile_key
  and {_NO_DESCRIPTION}
order by a.sequence, a.id
limit :limit
"""
LOOSE_SQL = f"""
select {_COLUMNS}
{_SOURCE}
where a.run_id = :run_id
  and a.compile_key is null
order by a.id
limit :limit
"""
ONE_SQL = f"""
select {_COLUMNS}, t.body
{_SOURCE}
left join payloads as t on t.id = a.payload_id
where a.id = :artifact_id
  and a.run_id = :run_id
limit 1
"""
NAMES_SQL = """
select name, count(*) as artifact_count
from artifacts
where run_id = :run_id
group by name
order by name
limit :limit
"""


@dataclass(frozen=True)
class ArtifactRow:
    """One log record with a name, from torch or another program."""

    tables = ("artifacts",)

    id: RowId
    run_id: RunId
    process_id: ProcessId
    sequence: int
    rank: Rank
    pid: Pid
    compile_key: CompileKey
    compile_id: CompileId
    generation: Annotated[Count | None, "Calls of `reset()` in the process before its compile."]
    attempt: int | None
    name: str
    title: str | None
    encoding: str
    state: str
    size_bytes: int | None
    md5: str | None
    time_us: EventTime
    metadata: dict[str, Any]
    envelope: dict[str, Any]
    stack_id: int | None

    @staticmethod
    def read_columns(columns: dict[str, Any]) -> dict[str, Any]:
        return columns | {name: _load_metadata(columns[name]) for name in ("metadata", "envelope")}

    @property
    @published
    def meaning(self) -> Annotated[str, "What a record of that name is."]:
        return describe_name(self.name)

    @property
    @published
    def state_meaning(self) -> Annotated[str, "The state in words."]:
        return describe_state(self.state).meaning


@dataclass(frozen=True)
class Artifact(ArtifactRow):
    """An artifact with its text.

    `text` is None if none is stored; `unreadable` says why a stored text cannot be read.
    """

    text: str | None = field(repr=False, metadata=PRIVATE)
    unreadable: str | None = field(metadata=PRIVATE)

    @staticmethod
    def read_columns(columns: dict[str, Any]) -> dict[str, Any]:
        body, text, unreadable = columns.pop("body"), None, None
        try:
            text = None if body is None else unpack(body)
        except ValueError as error:
            unreadable = str(error)
        return ArtifactRow.read_columns(columns) | {"text": text, "unreadable": unreadable}


@dataclass(frozen=True)
class ArtifactFilter:
    name: Annotated[str | None, "torch's name of an artifact, whole."] = None
    compile_key: Annotated[
        int | None,
        Parameter("compile", expected="the number of a compile"),
        "Only artifacts of the compile with this `id`.",
    ] = None
    text: Annotated[str | None, Parameter("q"), "Text to look for; capitals do not matter."] = None


_NUMBER = Keywords(pattern="^[0-9]+$")  # `check_artifact_id` reads it; a missing one is invalid too


_NEEDED = Parameter(expected="the number of an artifact", is_required=True)


@dataclass(frozen=True)
class ArtifactPairQuery:
    a: Annotated[str, _NUMBER, _NEEDED, "An artifact's `id`; its text is on the left."] = ""
    b: Annotated[str, _NUMBER, _NEEDED, "Another artifact's `id`; its text is on the right."] = ""
    b_run: Annotated[str | None, "The run that `b` is of, if not this one."] = None


@dataclass(frozen=True)
class NeighbouringArtifacts:
    previous: ArtifactRow | None
    next: ArtifactRow | None


def _load_metadata(text: str | None) -> dict[str, Any]:
    metadata = read_json(Any, text)
    return (
        metadata
        if isinstance(metadata, dict)
        else {}
        if metadata is None
        else {"metadata": metadata}
    )


def list_artifacts(
    connection: sqlite3.Connection,
    run_id: str,
    selection: ArtifactFilter | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[ArtifactRow]:
    """List artifacts by name, those of one compile in the log's order. Raises FilterError for an
    invalid cursor.
    """
    wanted = vars(selection or ArtifactFilter())
    of_run = ("name", RUN_SQL, "")
    of_compile = ("sequence", COMPILE_SQL, -(2**62))
    name, sql, start = of_run if wanted["compile_key"] is None else of_compile
    return list_page(
        ArtifactRow,
        sql,
        connection,
        run_id,
        cursor,
        limit,
        first={name: start, "id": 0},
        key=attrgetter(name, "id"),
        **wanted,
    )


# A compile's artifacts in order, without those that only describe its tensors.
list_texts = partial(list_rows, ArtifactRow, TEXTS_SQL, limit=200)
list_named = partial(list_rows, ArtifactRow, NAMED_SQL, limit=200)
list_loose = partial(list_rows, ArtifactRow, LOOSE_SQL, limit=200)


def get_artifact(connection: sqlite3.Connection, run_id: str, artifact_id: int) -> Artifact | None:
    return find_row(Artifact, ONE_SQL, connection, run_id, artifact_id=artifact_id)


def find_artifact(connection: sqlite3.Connection, artifact_id: int) -> Artifact | None:
    sql = "select run_id from artifacts where id = :artifact_id"
    row = connection.execute(sql, {"artifact_id": artifact_id}).fetchone()
    return None if row is None else get_artifact(connection, row["run_id"], artifact_id)


def count_names(connection: sqlite3.Connection, run_id: str, limit: int = 500) -> dict[str, int]:
    return dict(connection.execute(NAMES_SQL, {"run_id": run_id, "limit": limit}).fetchall())


def neighbours_sql(artifact: ArtifactRow, forward: bool) -> str:
    sign, direction = (">", "asc") if forward else ("<", "desc")
    inside = artifact.compile_key is not None
    scope = (
        "a.compile_key = :compile_key" if inside else "a.run_id = :run_id and a.compile_key is null"
    )
    order = "a.sequence" if inside else "a.id"
    texts = f"and {_NO_DESCRIPTION}" if artifact.name not in DESCRIPTIONS else ""
    # Every part is a constant of this module; values are bound.
    return f"""
select {_COLUMNS}
{_SOURCE}
where {scope}
  and {order} {sign} :here
  {texts}
order by {order} {direction}, a.id {direction}
limit 1
"""


def get_neighbours(connection: sqlite3.Connection, artifact: ArtifactRow) -> NeighbouringArtifacts:
    here = artifact.id if artifact.compile_key is None else artifact.sequence
    values = {"compile_key": artifact.compile_key, "here": here}
    before, after = (
        find_row(
            ArtifactRow, neighbours_sql(artifact, forward), connection, artifact.run_id, **values
        )
        for forward in (False, True)
    )
    return NeighbouringArtifacts(before, after)


def kind_of_title(title: str | None) -> str:
    hashed = _HASHED.fullmatch(title or "")
    return f".{hashed[1] or ''}" if hashed else title or ""


def find_counterpart(
    connection: sqlite3.Connection, artifact: ArtifactRow, other_compile_key: int
) -> ArtifactRow | None:
    if artifact.compile_key is None:
        return None
    here, there = (
        list_named(connection, compile_key=key, name=artifact.name)
        for key in (artifact.compile_key, other_compile_key)
    )
    return pair_artifacts(here, there).get(artifact.id)


def pair_artifacts(
    here: Sequence[ArtifactRow], there: Sequence[ArtifactRow]
) -> Mapping[int, ArtifactRow]:
    """Pair artifacts of two compiles by name, kind of title and position, within their last
    attempts.
    """
    waiting: dict[tuple[str, str, bool], list[ArtifactRow]] = {}
    for row in there:
        waiting.setdefault(_find_role(row, there), []).append(row)
    pairs = {}
    for row in here:
        same = waiting.get(_find_role(row, here))
        if same:
            pairs[row.id] = same.pop(0)
    return pairs


def _find_role(row: ArtifactRow, rows: Sequence[ArtifactRow]) -> tuple[str, str, bool]:
    last = max((artifact.attempt or 0 for artifact in rows), default=0)
    return row.name, kind_of_title(row.title), (row.attempt or 0) == last


def check_artifact_id(name: str, value: str) -> int:
    """Raises FilterError unless the id is a whole number."""
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise FilterError(f"{name}: {value[:40]!r} is not the number of an artifact")
    return int(value)


MAX_TEXTS = 100_000


@dataclass(frozen=True)
class StoredText:
    payload_id: int
    artifact_count: int
    name: str
    title: str | None
    compile_id: str | None
    rank: int | None
    size_bytes: int


STORED_TEXTS_SQL = """
with firsts as (
  select payload_id, min(id) as artifact_id, count(*) as artifact_count
  from artifacts
  where run_id = :run_id
    and payload_id is not null
  group by payload_id
)
select f.payload_id, f.artifact_count, a.name, a.title, a.compile_id,
coalesce(c.rank, p.rank) as rank, t.size_bytes
from firsts as f
join artifacts as a on a.id = f.artifact_id
join payloads as t on t.id = f.payload_id
left join compiles as c on c.id = a.compile_key
left join processes as p on p.id = a.process_id
order by f.artifact_id
limit :limit
"""
# The wanted ids come as a JSON list.
PAYLOADS_SQL = """
select a.id, a.payload_id
from json_each(:ids) as wanted
cross join artifacts as a on a.id = wanted.value
where a.payload_id is not null
limit :limit
"""
BODY_SQL = """
select body
from payloads
where id = :payload_id
limit 1
"""


list_stored_texts = partial(list_rows, StoredText, STORED_TEXTS_SQL, limit=MAX_TEXTS)


def find_payloads(connection: sqlite3.Connection, artifact_ids: Sequence[int]) -> dict[int, int]:
    values = {"ids": json.dumps(list(artifact_ids)), "limit": len(artifact_ids)}
    return {row["id"]: row["payload_id"] for row in connection.execute(PAYLOADS_SQL, values)}


def read_text(connection: sqlite3.Connection, payload_id: int) -> str | None:
    row = connection.execute(BODY_SQL, {"payload_id": payload_id}).fetchone()
    try:
        return None if row is None else unpack(row["body"])
    except ValueError:
        return None
