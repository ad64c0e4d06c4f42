"""Lines of a stream that are not events.

Counts are totals, of which the largest is kept, so that repeated marks add nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

from compileboard.collectors.contract.events import SCHEMA_VERSION, Json
from compileboard.collectors.contract.rejects import KINDS, OF_LAST_READING, Reject, Rejects
from compileboard.collectors.contract.values import clean, fit_event
from compileboard.collectors.wire.lines import UnknownLine, WireError

MARKS: dict[str, type[Mark]] = {}


@dataclass(frozen=True)
class Mark:
    MARK: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        MARKS[cls.MARK] = cls


@dataclass(frozen=True)
class Beat(Mark):
    """A heartbeat: first line of a stream, then after 5 idle seconds."""

    MARK = "beat"
    version: str | None = None  # of the collector
    lost_count: int = 0  # events that the box had no room for, since the stream began


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
    excerpts: list[tuple[str, int, list[str]]]  # file, number of the first line, lines


@dataclass(frozen=True)
class SpoolRejects(Mark):
    MARK = "rejects"
    file_name: str
    rejects: Rejects


@dataclass(frozen=True)
class TracePieces(Mark):
    """Up to 8 pieces of a trace log, 1 MiB each, sent before as texts."""

    MARK = "trace_file"
    name: str
    size_bytes: int  # of the whole log
    position: int  # of the first of these pieces among all
    pieces: list[str]


@dataclass(frozen=True)
class StreamEnd(Mark):
    """The last line of a stream, with size and CRC-32 of all lines before it."""

    MARK = "end"
    size_bytes: int
    checksum: int
    lost_count: int = 0


def dump_mark(mark: Mark) -> bytes:
    body = {"v": SCHEMA_VERSION, "mark": mark.MARK, **vars(mark)}
    if "rejects" in body:
        body["rejects"] = {
            kind: [reject.count, reject.first_line, reject.example]
            for kind, reject in body["rejects"].by_kind.items()
        }
    return json.dumps(clean(body), separators=(",", ":")).encode() + b"\n"


def load_mark(body: Mapping[str, Json]) -> Mark:
    """Convert a parsed line to its mark, ignoring unknown fields. Raises UnknownLine or
    WireError.
    """
    cls = MARKS.get(str(body.get("mark")))
    if cls is None:
        raise UnknownLine(f"unknown mark {str(body.get('mark'))[:80]!r}; known: {', '.join(MARKS)}")
    values = {field.name: body[field.name] for field in fields(cls) if field.name in body}
    if "rejects" in values:
        values["rejects"] = _load_rejects(values["rejects"])
    try:
        mark, notes = fit_event(cls(**values))
    except TypeError as error:
        raise WireError(f"a {cls.MARK} mark lacks a value: {error}") from None
    if mark is None or notes:
        raise WireError(f"{cls.MARK}: {'; '.join(notes)}")
    return mark


def _load_rejects(body: Json) -> Rejects | None:
    """Convert rejects from JSON; None if they are of another type or of an unknown kind."""
    try:
        rejects = Rejects({kind: Reject(*row) for kind, row in body.items()})
    except (TypeError, AttributeError):
        return None
    return rejects if KINDS.keys() >= rejects.by_kind.keys() else None
