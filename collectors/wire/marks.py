"""Lines of a stream that are not events.

Counts are totals. The largest is kept, so that repeated marks add nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from compileboard.collectors.contract.events import SCHEMA_VERSION, Json
from compileboard.collectors.contract.rejects import KINDS, OF_LAST_READING, Reject, Rejects
from compileboard.collectors.contract.values import MAX_EXACT_INTEGER
from compileboard.collectors.wire.lines import DIGEST, UnknownLine, WireError

MARKS: dict[str, type[Mark]] = {}


@dataclass(frozen=True)
class Mark:
    MARK: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        MARKS[cls.MARK] = cls


@dataclass(frozen=True)
class Heartbeat(Mark):
    """A heartbeat: the first line of a stream, then one after each 5 idle seconds."""

    MARK = "beat"
    version: str | None = None  # The collector's version.
    lost_count: int = 0  # events dropped by the client for lack of space, since the stream began


@dataclass(frozen=True)
class LogRead(Mark):
    MARK = "batch"
    process_id: str
    name: str  # the log's file
    end_bytes: int = 0
    line_count: int = 0
    record_count: int = 0
    last_us: int | None = None
    rejects: Rejects = field(default_factory=Rejects)

    def advance(
        self,
        end_bytes: int,
        line_count: int,
        record_count: int,
        last_us: int | None,
        rejects: Rejects,
    ) -> LogRead:
        counted = self.rejects.copy()
        for kind in OF_LAST_READING:
            counted.by_kind.pop(kind, None)
        counted.add_all(rejects)
        return replace(
            self,
            end_bytes=end_bytes,
            line_count=line_count,
            record_count=self.record_count + record_count,
            last_us=self.last_us if last_us is None else last_us,
            rejects=counted,
        )


@dataclass(frozen=True)
class SourceRead(Mark):
    MARK = "source"
    excerpts: Sequence[tuple[str, int, Sequence[str]]]  # file, number of the first line, lines


@dataclass(frozen=True)
class SpoolRejects(Mark):
    MARK = "rejects"
    file_name: str
    rejects: Rejects


@dataclass(frozen=True)
class TracePieces(Mark):
    """Up to 8 pieces of a trace log, 1 MiB each, already sent as texts."""

    MARK = "trace_file"
    name: str
    size_bytes: int  # The size of the whole log.
    position: int  # index of the first of these pieces
    pieces: Sequence[str]


@dataclass(frozen=True)
class StreamEnd(Mark):
    """The last line of a stream, with size and CRC-32 of all lines before it."""

    MARK = "end"
    size_bytes: int
    checksum: int
    lost_count: int = 0


def dump_mark(mark: Mark) -> bytes:
    body = {"v": SCHEMA_VERSION, "mark": mark.MARK, **vars(mark)}
    return json.dumps(body, separators=(",", ":"), default=_dump_rejects).encode() + b"\n"


def _dump_rejects(rejects: Rejects) -> Json:
    return {
        kind: [reject.count, reject.first_line, reject.example]
        for kind, reject in rejects.by_kind.items()
    }


def load_mark(body: Mapping[str, Json]) -> Mark:
    """Convert a parsed line to its mark, ignoring unknown fields. Raises UnknownLine or
    WireError.
    """
    cls = MARKS.get(str(body.get("mark")))
    if cls is None:
        raise UnknownLine(f"unknown mark {str(body.get('mark'))[:80]!r}; known: {', '.join(MARKS)}")
    values = {}
    for of_mark in fields(cls):
        if of_mark.name not in body:
            continue
        value = _LOADERS[str(of_mark.type)](body[of_mark.name])
        if value is _WRONG:
            raise WireError(
                f"{cls.MARK}: {of_mark.name} is {str(body[of_mark.name])[:80]!r}, not "
                f"{of_mark.type}"
            )
        values[of_mark.name] = value
    try:
        return cls(**values)
    except TypeError as error:
        raise WireError(f"a {cls.MARK} mark lacks a value: {error}") from None


_WRONG = object()


def _load_count(value: Json) -> Any:
    return value if type(value) is int and 0 <= value <= MAX_EXACT_INTEGER else _WRONG


def _load_text(value: Json) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else _WRONG


def _load_rejects(value: Json) -> Any:
    if not isinstance(value, dict):
        return _WRONG
    rejects = Rejects()
    for kind, row in value.items():
        if not isinstance(row, list) or len(row) != 3 or kind not in KINDS:
            return _WRONG
        count, line, example = row
        if _WRONG in (
            _load_count(count),
            _or_none(_load_count)(line),
            _or_none(_load_text)(example),
        ):
            return _WRONG
        rejects.by_kind[kind] = Reject(count, line, _or_none(_load_text)(example))
    return rejects


def _load_excerpts(value: Json) -> Any:
    if not isinstance(value, list):
        return _WRONG
    for row in value:
        if not isinstance(row, list) or len(row) != 3 or not isinstance(row[2], list):
            return _WRONG
        if _WRONG in (_load_text(row[0]), _load_count(row[1]), *map(_load_text, row[2])):
            return _WRONG
    return [(_load_text(file), line, tuple(map(_load_text, lines))) for file, line, lines in value]


def _load_pieces(value: Json) -> Any:
    is_list = isinstance(value, list) and all(
        isinstance(piece, str) and DIGEST.fullmatch(piece) for piece in value
    )
    return value if is_list else _WRONG


def _or_none(load: Any) -> Any:
    return lambda value: None if value is None else load(value)


_LOADERS = {
    "int": _load_count,
    "str": _load_text,
    "int | None": _or_none(_load_count),
    "str | None": _or_none(_load_text),
    "Rejects": _load_rejects,
    "Sequence[str]": _load_pieces,
    "Sequence[tuple[str, int, Sequence[str]]]": _load_excerpts,
}
