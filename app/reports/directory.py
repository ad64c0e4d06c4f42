"""The Compile directory of a report and the texts behind it, read a page at a time: memory stays flat."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from compileboard.app.analysis.directory import Entry, build_entries
from compileboard.app.queries import artifacts, compiles, directory
from compileboard.app.queries.artifacts import ArtifactRow
from compileboard.app.queries.kept_texts import KeptText, find_payloads, list_kept_texts, read_text

MOST_ENTRIES = 100  # compiles of a report without texts: what it says of one is ≈ 2 KB
MOST_ENTRIES_WITH_TEXTS = 5_000
MOST_TEXT_BYTES = 64 * 1024 * 1024
_PAGE = 25  # compiles that are read at once, each with all that it wrote


@dataclass(frozen=True)
class TextChoice:
    """Hold which texts a report has, in the order of the logs; `left_count` and `left_bytes` are of the others."""

    texts: Sequence[KeptText]
    left_count: int = 0
    left_bytes: int = 0
    kept: Collection[int] = field(default=frozenset(), repr=False)

    @property
    def text_bytes(self) -> int:
        """Return the size of all of them."""
        return sum(it.size_bytes for it in self.texts)


@dataclass(frozen=True)
class Listed:
    """Hold one compile of the directory; `texts` has, by the artifact's number, the text that is in the report."""

    entry: Entry
    texts: dict[int, int]


def choose_texts(connection: sqlite3.Connection, run_id: str, most_bytes: int = MOST_TEXT_BYTES) -> TextChoice:
    """Choose the texts of a run that fit into a report: in order, without those that are too large for what is left."""
    chosen, left_count, left_bytes, room = [], 0, 0, most_bytes
    for it in list_kept_texts(connection, run_id):
        if it.size_bytes <= room:
            chosen.append(it)
            room -= it.size_bytes
        else:
            left_count, left_bytes = left_count + 1, left_bytes + it.size_bytes
    return TextChoice(chosen, left_count, left_bytes, frozenset(it.payload_id for it in chosen))


def iterate_entries(
    connection: sqlite3.Connection, run_id: str, choice: TextChoice, running: bool, most: int
) -> Iterator[Listed]:
    """Give the run's first compiles in order, with what their logs say."""
    cursor: str | None = None
    while most > 0:
        page = compiles.list_compiles(connection, run_id, cursor=cursor, limit=min(_PAGE, most))
        steps = directory.list_steps(connection, [it.id for it in page.rows])
        texts = _find_texts(connection, [it.ref_id for it in steps if it.kind == "artifact"], choice)
        for entry in build_entries(page.rows, steps, running):
            yield Listed(entry, texts)
        most, cursor = most - len(page.rows), page.next
        if cursor is None:
            return


def list_loose(connection: sqlite3.Connection, run_id: str, choice: TextChoice) -> list[tuple[ArtifactRow, int | None]]:
    """List what the logs hold outside any compile, each with its text's number where the report has it."""
    rows = artifacts.list_loose(connection, run_id)
    texts = _find_texts(connection, [it.id for it in rows], choice)
    return [(it, texts.get(it.id)) for it in rows]


def _find_texts(connection: sqlite3.Connection, artifact_ids: Sequence[int], choice: TextChoice) -> dict[int, int]:
    if not choice.kept:
        return {}
    found = find_payloads(connection, artifact_ids)
    return {number: payload for number, payload in found.items() if payload in choice.kept}


def iterate_texts(connection: sqlite3.Connection, choice: TextChoice) -> Iterator[tuple[KeptText, str | None]]:
    """Give each chosen text with its words, one at a time; None where it cannot be read back."""
    for it in choice.texts:
        yield it, read_text(connection, it.payload_id)
