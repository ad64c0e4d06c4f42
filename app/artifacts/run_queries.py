"""Artifacts: texts that torch logged under a name - graphs, generated code, guards."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from compileboard.app.artifacts.labels import describe_name, describe_state
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
from compileboard.app.core.page import FilterError, Page, decode_cursor, make_page
from compileboard.app.core.parameters import Parameter
from compileboard.app.core.schema import PRIVATE, Keywords, published
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.reading import read_json

# One a tensor that torch looked at: hundreds a compile, so lists count them and paging from text to
# text passes them.
DESCRIPTIONS = ("describe_source", "describe_storage", "describe_tensor")
_NO_DESCRIPTION = "a.name not in ('describe_source', 'describe_storage', 'describe_tensor')"
# inductor names a file after a hash of its text, so that title is another one for every text.
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
select {_COLUMNS}, t.body, t.size_bytes as kept_bytes
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
    """One record that torch or another program wrote into a log under a name."""

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
    """`text` is None if none is stored; `unreadable` says why a stored one cannot be read."""

    text: str | None = field(repr=False, metadata=PRIVATE)
    unreadable: str | None = field(metadata=PRIVATE)


@dataclass(frozen=True)
class ArtifactFilter:
    name: Annotated[str | None, "torch's name of an artifact, whole."] = None
    compile_key: Annotated[
        int | None,
        Parameter("compile", expected="the number of a compile"),
        "Only the artifacts of this compile: its `id`.",
    ] = None
    text: Annotated[str | None, Parameter("q"), "Text to look for; capitals do not matter."] = None


_NUMBER = Keywords(
    pattern="^[0-9]+$"
)  # `check_artifact_id` reads it: one that is missing is wrong as well


@dataclass(frozen=True)
class ArtifactPairQuery:
    a: Annotated[str, _NUMBER, "An artifact's `id`; its text is on the left."] = ""
    b: Annotated[str, _NUMBER, "Another artifact's `id`; its text is on the right."] = ""


@dataclass(frozen=True)
class Neighbours:
    previous: ArtifactRow | None
    next: ArtifactRow | None


def _to_row(row: sqlite3.Row) -> ArtifactRow:
    values = dict(row)
    return ArtifactRow(**values | {name: _load(values[name]) for name in ("metadata", "envelope")})


def _load(text: str | None) -> dict[str, Any]:
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
    unusable cursor.
    """
    selection = selection or ArtifactFilter()
    values: dict[str, Any] = {
        "run_id": run_id,
        "name": selection.name,
        "text": selection.text,
        "limit": limit + 1,
    }
    if selection.compile_key is None:
        name, last = decode_cursor(cursor, str, int) or ("", 0)
        rows = connection.execute(RUN_SQL, values | {"after_name": name, "after_id": last})
        return make_page([_to_row(row) for row in rows], limit, lambda row: (row.name, row.id))
    sequence, last = decode_cursor(cursor, int, int) or (-(2**62), 0)
    more = {"compile_key": selection.compile_key, "after_sequence": sequence, "after_id": last}
    rows = connection.execute(COMPILE_SQL, values | more)
    return make_page([_to_row(row) for row in rows], limit, lambda row: (row.sequence, row.id))


def list_texts(
    connection: sqlite3.Connection, compile_key: int, limit: int = 200
) -> list[ArtifactRow]:
    """List a compile's artifacts in order, without those that only describe its tensors."""
    return [
        _to_row(row)
        for row in connection.execute(TEXTS_SQL, {"compile_key": compile_key, "limit": limit})
    ]


def list_named(
    connection: sqlite3.Connection, compile_key: int, name: str, limit: int = 200
) -> list[ArtifactRow]:
    values = {"compile_key": compile_key, "name": name, "limit": limit}
    return [_to_row(row) for row in connection.execute(NAMED_SQL, values)]


def list_loose(connection: sqlite3.Connection, run_id: str, limit: int = 200) -> list[ArtifactRow]:
    return [
        _to_row(row) for row in connection.execute(LOOSE_SQL, {"run_id": run_id, "limit": limit})
    ]


def get_artifact(connection: sqlite3.Connection, run_id: str, artifact_id: int) -> Artifact | None:
    row = connection.execute(ONE_SQL, {"run_id": run_id, "artifact_id": artifact_id}).fetchone()
    return None if row is None else _to_artifact(row)


def find_artifact(connection: sqlite3.Connection, artifact_id: int) -> Artifact | None:
    sql = "select run_id from artifacts where id = :artifact_id"
    row = connection.execute(sql, {"artifact_id": artifact_id}).fetchone()
    return None if row is None else get_artifact(connection, row["run_id"], artifact_id)


def _to_artifact(row: sqlite3.Row) -> Artifact:
    values = dict(row)
    body, _size = values.pop("body"), values.pop("kept_bytes")
    text = unreadable = None
    if body is not None:
        try:
            text = unpack(body)
        except ValueError as error:
            unreadable = str(error)
    loaded = {name: _load(values[name]) for name in ("metadata", "envelope")}
    return Artifact(**values | loaded, text=text, unreadable=unreadable)


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
    # Every part is one of this module's own texts; what people give is bound.
    return f"""
select {_COLUMNS}
{_SOURCE}
where {scope}
  and {order} {sign} :here
  {texts}
order by {order} {direction}, a.id {direction}
limit 1
"""


def get_neighbours(connection: sqlite3.Connection, artifact: ArtifactRow) -> Neighbours:
    here = artifact.id if artifact.compile_key is None else artifact.sequence
    values = {"run_id": artifact.run_id, "compile_key": artifact.compile_key, "here": here}
    before, after = (
        connection.execute(neighbours_sql(artifact, forward), values).fetchone()
        for forward in (False, True)
    )
    return Neighbours(_to_row(before) if before else None, _to_row(after) if after else None)


def kind_of_title(title: str | None) -> str:
    hashed = _HASHED.fullmatch(title or "")
    return f".{hashed[1] or ''}" if hashed else title or ""


def find_counterpart(
    connection: sqlite3.Connection, artifact: ArtifactRow, other_compile_key: int
) -> ArtifactRow | None:
    if artifact.compile_key is None:
        return None
    here = list_named(connection, artifact.compile_key, artifact.name)
    there = list_named(connection, other_compile_key, artifact.name)
    return pair_artifacts(here, there).get(artifact.id)


def pair_artifacts(here: list[ArtifactRow], there: list[ArtifactRow]) -> Mapping[int, ArtifactRow]:
    """Pair artifacts of two compiles by name, kind of title and position, within their last
    attempts.
    """
    waiting: dict[tuple[str, str, bool], list[ArtifactRow]] = {}
    for row in there:
        waiting.setdefault(_role(row, there), []).append(row)
    pairs = {}
    for row in here:
        same = waiting.get(_role(row, here))
        if same:
            pairs[row.id] = same.pop(0)
    return pairs


def list_pairs(
    connection: sqlite3.Connection,
    older_key: int,
    newer_key: int,
    names: Iterable[str],
    limit: int = 8,
) -> list[tuple[Artifact, Artifact]]:
    pairs = []
    for name in names:
        here, there = (
            list_named(connection, older_key, name),
            list_named(connection, newer_key, name),
        )
        matched = pair_artifacts(here, there)
        for row in [row for row in here if row.id in matched][:limit]:
            pair = [
                get_artifact(connection, artifact.run_id, artifact.id)
                for artifact in (row, matched[row.id])
            ]
            if (
                pair[0] is not None
                and pair[1] is not None
                and None not in (pair[0].text, pair[1].text)
            ):
                pairs.append((pair[0], pair[1]))
    return pairs


def _role(row: ArtifactRow, rows: list[ArtifactRow]) -> tuple[str, str, bool]:
    last = max((artifact.attempt or 0 for artifact in rows), default=0)
    return row.name, kind_of_title(row.title), (row.attempt or 0) == last


def check_artifact_id(name: str, value: str) -> int:
    """Raises FilterError if the id is not a whole number."""
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise FilterError(f"{name}: {value[:40]!r} is not the number of an artifact")
    return int(value)


MOST_TEXTS = 100_000


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
# By id: the wanted ids come as a JSON list.
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


def list_stored_texts(
    connection: sqlite3.Connection, run_id: str, limit: int = MOST_TEXTS
) -> list[StoredText]:
    return [
        StoredText(**dict(row))
        for row in connection.execute(STORED_TEXTS_SQL, {"run_id": run_id, "limit": limit})
    ]


def find_payloads(connection: sqlite3.Connection, artifact_ids: Sequence[int]) -> dict[int, int]:
    values = {"ids": json.dumps(list(artifact_ids)), "limit": len(artifact_ids)}
    return {row["id"]: row["payload_id"] for row in connection.execute(PAYLOADS_SQL, values)}


def read_text(connection: sqlite3.Connection, payload_id: int) -> str | None:
    row = connection.execute(BODY_SQL, {"payload_id": payload_id}).fetchone()
    try:
        return None if row is None else unpack(row["body"])
    except ValueError:
        return None
