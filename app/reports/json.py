"""The JSON report: all data of a run under the API's names, written row by row."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import orjson

from compileboard.app.format import format_iso_time
from compileboard.app.json_text import dump_json
from compileboard.app.queries.newest import RecorderClock
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.reports.redaction import clean_row
from compileboard.app.reports.run.tables import TABLES, read_rows
from compileboard.app.resources import __version__
from compileboard.app.schema import get_plain
from compileboard.app.screens.fleet.runs import describe_facts
from compileboard.app.screens.run.ranks import build_ranks, report_ranks

SCHEMA = "compileboard.report"
VERSION = 1
_CHUNK_BYTES = 64 * 1024


def dump(value: Any) -> bytes:
    return dump_json(value, orjson.OPT_NON_STR_KEYS)


def write_json(
    connection: sqlite3.Connection,
    detail: RunDetail,
    source: bool,
    written_us: int,
    stale_after_s: int,
) -> Iterator[bytes]:
    pieces: list[bytes] = []
    size = 0
    for piece in _write(connection, detail, source, written_us, stale_after_s):
        pieces.append(piece)
        size += len(piece)
        if size >= _CHUNK_BYTES:
            yield b"".join(pieces)
            pieces, size = [], 0
    yield b"".join(pieces)


def _write(
    connection: sqlite3.Connection,
    detail: RunDetail,
    source: bool,
    written_us: int,
    stale_after_s: int,
) -> Iterator[bytes]:
    run = get_plain(describe_facts(detail, RecorderClock(written_us, stale_after_s)))
    head = {
        "schema": SCHEMA,
        "version": VERSION,
        "written_by": f"CompileBoard {__version__}",
        "written_at": format_iso_time(written_us),
        "source_lines": source and detail.keep_source,
        "run": run if source else clean_row(run),
    }
    yield b"{\n"
    for name, value in head.items():
        yield dump(name) + b": " + dump(value) + b",\n"
    for position, table in enumerate(TABLES):
        yield (b",\n" if position else b"") + dump(table.name) + b": ["
        for number, row in enumerate(read_rows(connection, detail.run.id, table, source)):
            yield (b",\n  " if number else b"\n  ") + dump(row)
        yield b"\n]"
    ranks = get_plain(report_ranks(build_ranks(connection, detail.run.id)))
    yield b',\n"ranks": ' + dump(ranks if source else clean_row(ranks))
    yield b"\n}\n"
