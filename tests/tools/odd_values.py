"""Put odd values into fields of recorded records, one at a time, and import the result."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import md5
from pathlib import Path
from typing import Any

from compileboard.collectors.logs.discovery import find_sources
from compileboard.collectors.logs.log_loader import ImportSummary, LoadOptions, LogLoader
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.migrations import migrate_connection

# As JSON writes them: Python's own reader takes them all.
ODD_VALUES = {
    "text": '"x"',
    "empty text": '""',
    "empty list": "[]",
    "list": '["x", null]',
    "object": '{"a": 1}',
    "fraction": "1.5",
    "1e999": "1e999",
    "NaN": "NaN",
    "below zero": "-1",
    "2**63": str(2**63),
    "true": "true",
    "half a pair": '"\\ud800"',
    "deeply nested": "[" * 200 + "]" * 200,
}
_MARK = "@odd value@"
Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Record:
    """One record of a trace log. `payload_value` is its payload where that is JSON."""

    prefix: str
    header: dict[str, Any]
    payload: str | None

    @property
    def name(self) -> str:
        """Name the record as the reader does."""
        name = next(iter(self.header))
        return f"artifact:{self.header[name].get('name')}" if name == "artifact" else name

    def write(self, odd: str = "") -> bytes:
        """Write the record as torch does, its text hashed, with a JSON text in place of the
        mark.
        """
        header, lines = dict(self.header), []
        if self.payload is not None:
            text = self.payload.replace(f'"{_MARK}"', odd)
            if isinstance(header.get("has_payload"), str) and header["has_payload"] != _MARK:
                header["has_payload"] = md5(text.encode()).hexdigest()
            lines = [f"\t{line}" for line in text.split("\n")]
        first = f"{self.prefix}{json.dumps(header)}".replace(f'"{_MARK}"', odd)
        return "\n".join([first, *lines, ""]).encode()

    def places(self) -> Iterator[Place]:
        """List where a value of its stands: in its envelope, and in its payload where that is
        JSON.
        """
        yield from (("header", *path) for path in _places(self.header))
        if self.payload is not None:
            yield ("payload",)
            yield from (("payload", *path) for path in _places(_parsed(self.payload)))

    def marked(self, path: Place) -> Record:
        """Put the mark in place of a value."""
        if path[0] == "header":
            return replace(self, header=_marked(self.header, path[1:]))
        return replace(
            self, payload=json.dumps(_marked(_parsed(self.payload or ""), path[1:]), indent=0)
        )


def read_records(raw: bytes) -> list[Record]:
    """Split a log into its records."""
    pairs: list[tuple[str, list[str]]] = []
    for line in raw.decode("utf-8", "replace").split("\n"):
        if line.startswith("\t") and pairs:
            pairs[-1][1].append(line[1:])
        elif "] {" in line:
            pairs.append((line, []))
    made = []
    for line, payload in pairs:
        prefix, _, body = line.partition("] {")
        made.append(
            Record(f"{prefix}] ", json.loads("{" + body), "\n".join(payload) if payload else None)
        )
    return made


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _places(value: Any, depth: int = 0) -> Iterator[Place]:
    """List the places in a value: every name of an object, the first of a list."""
    if depth == 4 or not isinstance(value, dict | list):
        return
    for key, entry in value.items() if isinstance(value, dict) else list(enumerate(value))[:1]:
        yield (key,)
        yield from ((key, *path) for path in _places(entry, depth + 1))


def _marked(value: Any, path: Place) -> Any:
    if not path:
        return _MARK
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _marked(value[path[0]], path[1:])
    return copy


def surroundings(records: list[Record], target: int) -> tuple[list[Record], list[Record]]:
    """Choose a few records before and after one, with the names that their stacks need."""
    names = [record for record in records[:target] if record.name == "str"]
    starts = [
        record for record in records[:target] if record.name in ("dynamo_start", "chromium_event")
    ][:3]
    after = [record for record in records[target + 1 :] if record.name != "str"][:4]
    ends = [
        record
        for record in records[target + 1 :]
        if record.name in ("compilation_metrics", "artifact:recompile_reasons")
    ]
    return [*names, *starts], [
        *after,
        *[record_ for record_ in ends[:2] if not any(record_ is record for record in after)],
    ]


class OddLogs:
    """Import small logs, each into a database of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with closing(open_writer(folder / "empty.db")) as connection:
            migrate_connection(connection)
        self.database, self.log = folder / "t.db", folder / "x.log"

    def load(
        self, before: bytes, odd: bytes, after: bytes
    ) -> tuple[ImportSummary, dict[str, list[int]]]:
        """Import a log; return what that did, and which of the records around the odd one are in
        which table.

        The odd one's own place is left out, and what comes after it counts from its end.
        """
        self.log.write_bytes(before + odd + after)
        shutil.copyfile(self.folder / "empty.db", self.database)
        with closing(open_writer(self.database)) as connection:
            loader = LogLoader(
                connection, str(self.database), find_sources(str(self.log)), LoadOptions()
            )
            done = loader.read()
            loader.finish()
            return done, {
                table: _sequences(connection, table, len(before), len(odd)) for table in TABLES
            }


TABLES = ("events", "compilations", "artifacts", "symbols", "spans")


def _sequences(connection: sqlite3.Connection, table: str, begin: int, length: int) -> list[int]:
    if table == "spans":
        return list(range(connection.execute("select count(*) from spans").fetchone()[0]))
    query = f"select sequence from {table}"
    query += " where kind <> 'run_ended'" if table == "events" else ""
    sequences = [int(row[0]) for row in connection.execute(query)]
    return sorted(
        sequence if sequence < begin else sequence - length
        for sequence in sequences
        if not begin <= sequence < begin + length
    )
