"""A run's report as one HTML file that opens offline, written in parts to save memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from compileboard.app.analysis.compiles import CompileEntry, build_entries
from compileboard.app.queries.run import artifacts, compiles, trace_files
from compileboard.app.queries.run.artifacts import (
    ArtifactRow,
    StoredText,
    find_payloads,
    list_stored_texts,
    read_text,
)
from compileboard.app.reports.page import (
    BENCH_STYLES,
    EXPLORED_STYLES,
    STYLES,
    list_scripts,
    make_environment,
    make_policy,
    read_static,
)
from compileboard.app.reports.run.contents import Contents
from compileboard.app.resources import __version__

MOST_ENTRIES = 100  # compiles of a report without texts: what it says of one is ≈ 2 KB
MOST_ENTRIES_WITH_TEXTS = 5_000
MOST_TEXT_BYTES = 64 * 1024 * 1024
_PAGE = 25  # compiles that are read at once, each with all that it wrote


@dataclass(frozen=True)
class TextChoice:
    texts: Sequence[StoredText]
    left_count: int = 0
    left_bytes: int = 0
    payload_ids: Collection[int] = field(default=frozenset(), repr=False)

    @property
    def text_bytes(self) -> int:
        return sum(text.size_bytes for text in self.texts)


@dataclass(frozen=True)
class Listed:
    entry: CompileEntry
    texts: dict[int, int]


def choose_texts(
    connection: sqlite3.Connection, run_id: str, most_bytes: int = MOST_TEXT_BYTES
) -> TextChoice:
    """Choose the texts that fit into a report, in order; a text too large for the remaining space
    is skipped.
    """
    chosen, left_count, left_bytes, room = [], 0, 0, most_bytes
    for stored_text in list_stored_texts(connection, run_id):
        if stored_text.size_bytes <= room:
            chosen.append(stored_text)
            room -= stored_text.size_bytes
        else:
            left_count, left_bytes = left_count + 1, left_bytes + stored_text.size_bytes
    return TextChoice(
        chosen, left_count, left_bytes, frozenset(stored_text.payload_id for stored_text in chosen)
    )


def iterate_entries(
    connection: sqlite3.Connection, run_id: str, choice: TextChoice, most: int
) -> Iterator[Listed]:
    cursor: str | None = None
    while most > 0:
        page = compiles.list_compiles(connection, run_id, cursor=cursor, limit=min(_PAGE, most))
        steps = trace_files.list_steps(connection, [row.id for row in page.rows])
        texts = _find_texts(
            connection, [step.ref_id for step in steps if step.kind == "artifact"], choice
        )
        for entry in build_entries(page.rows, steps):
            yield Listed(entry, texts)
        most, cursor = most - len(page.rows), page.next
        if cursor is None:
            return


def list_loose(
    connection: sqlite3.Connection, run_id: str, choice: TextChoice
) -> list[tuple[ArtifactRow, int | None]]:
    rows = artifacts.list_loose(connection, run_id)
    texts = _find_texts(connection, [row.id for row in rows], choice)
    return [(row, texts.get(row.id)) for row in rows]


def _find_texts(
    connection: sqlite3.Connection, artifact_ids: Sequence[int], choice: TextChoice
) -> dict[int, int]:
    if not choice.payload_ids:
        return {}
    payloads = find_payloads(connection, artifact_ids)
    return {
        number: payload for number, payload in payloads.items() if payload in choice.payload_ids
    }


def iterate_texts(
    connection: sqlite3.Connection, choice: TextChoice
) -> Iterator[tuple[StoredText, str | None]]:
    for text in choice.texts:
        yield text, read_text(connection, text.payload_id)


POLICY = make_policy(charted=False)
_CHUNK_CHARACTERS = 64 * 1024


def write_html(
    connection: sqlite3.Connection, contents: Contents, payloads: bool = False
) -> Iterator[bytes]:
    """Yield the report in chunks; with `payloads` it includes the run's graphs and code."""
    template = make_environment().get_template("reports/run/index.html")
    pieces: list[str] = []
    size = 0
    for piece in template.generate(
        **_list_values(contents), **_list_directory(connection, contents, payloads)
    ):
        pieces.append(piece)
        size += len(piece)
        if size >= _CHUNK_CHARACTERS:
            yield "".join(pieces).encode("utf-8", "replace")
            pieces, size = [], 0
    yield "".join(pieces).encode("utf-8", "replace")


def _list_values(contents: Contents) -> dict[str, Any]:
    return {
        "contents": contents,
        "run": contents.run,
        "detail": contents.detail,
        "header": contents.header,
        "live": contents.header.is_live,
        "scripts": list_scripts(charted=False),
        "policy": POLICY,
        "version": __version__,
    }


def _list_directory(
    connection: sqlite3.Connection, contents: Contents, payloads: bool
) -> dict[str, Any]:
    run = contents.run
    choice = choose_texts(connection, run.id) if payloads else TextChoice(())
    most = MOST_ENTRIES_WITH_TEXTS if choice.texts else MOST_ENTRIES
    listed = contents.features.has_artifacts
    explored = (
        contents.timeline,
        contents.stacks,
        contents.guards,
        contents.shapes,
        contents.aot,
        contents.rejects,
    )
    is_explored = listed or contents.features.has_ranks or any(explored)
    return {
        "styles": read_static(
            (
                *STYLES,
                *(EXPLORED_STYLES if is_explored else ()),
                *(BENCH_STYLES if contents.results else ()),
            )
        ),
        "listed": listed,
        "listed_count": min(most, run.compile_count),
        "entries": iterate_entries(connection, run.id, choice, most),
        "loose": list_loose(connection, run.id, choice) if listed else [],
        "choice": choice,
        "texts": iterate_texts(connection, choice),
    }
