"""The parts of an HTML report: templates, inlined files, and a matching Content-Security-Policy."""

from __future__ import annotations

import base64
import hashlib
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from compileboard.app.artifacts import run_queries as artifacts
from compileboard.app.artifacts.run_queries import (
    ArtifactRow,
    StoredText,
    find_payloads,
    list_stored_texts,
    read_text,
)
from compileboard.app.compiles import run_queries as compiles
from compileboard.app.compiles.model import CompileEntry, build_entries
from compileboard.app.core.filters import TEMPLATE_FILTERS, TEMPLATE_NAMES
from compileboard.app.core.resources import __version__, resource_folder
from compileboard.app.reports.contents import Contents
from compileboard.app.reports.csv_report import join_chunks
from compileboard.app.runs import trace_files

STYLES = ("css/tokens.css", "css/app.css", "css/parts.css", "css/report.css", "css/print.css")
# For texts of torch's logs; other reports stay small.
EXPLORED_STYLES = ("css/artifacts.css", "css/explore.css", "css/report-explored.css")
BENCH_STYLES = ("css/results.css",)
TREND_STYLES = ("css/trends.css",)
PLOTLY = "vendor/plotly/plotly-basic.min.js"
# Scripts of their own, which share no names. Charts with a common axis, which zoom together, need
# one more.
MODULES = ("js/charts.mjs", "js/print.mjs")
LINKED_MODULES = (*MODULES, "js/trends.mjs")


@lru_cache(maxsize=1)
def make_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(str(resource_folder("templates"))),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(TEMPLATE_FILTERS)
    environment.globals.update(TEMPLATE_NAMES)
    # |tojson escapes < > & ', and json.dumps every character beyond ASCII, including U+2028 and
    # U+2029.
    environment.policies["json.dumps_kwargs"] = {}
    return environment


@lru_cache(maxsize=16)
def read_static(names: Sequence[str]) -> Markup:
    """Return static files for inlining into a page.

    Raises ValueError if one of them could close its element.
    """
    folder = resource_folder("static")
    text = "\n".join((folder / name).read_text(encoding="utf-8") for name in names)
    for end in ("</script", "</style", "<!--", "\r"):
        if end in text:
            raise ValueError(f"{names} cannot be inlined: there is {end!r} inside")
    return Markup(text)  # noqa: S704  our own files


@lru_cache(maxsize=1)
def read_plotly() -> bytes:
    return read_static((PLOTLY,)).encode()


def hash_script(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def list_scripts(charted: bool, linked: bool = False) -> tuple[tuple[str, Markup], ...]:
    names = LINKED_MODULES if linked else MODULES if charted else ("js/print.mjs",)
    modules = tuple(("module", read_static((name,))) for name in names)
    return (("text/javascript", read_static((PLOTLY,))), *modules) if charted else modules


@lru_cache(maxsize=4)
def make_policy(charted: bool, linked: bool = False) -> str:
    scripts = " ".join(hash_script(text) for _type, text in list_scripts(charted, linked))
    parts = (
        "default-src 'none'",
        f"script-src {scripts}",
        "style-src 'unsafe-inline'",
        "img-src data:",
    )
    return "; ".join((*parts, "base-uri 'none'", "form-action 'none'"))


MAX_PARTS = 40  # per step
MAX_ENTRIES = 100  # compiles of a report without texts: each takes ≈ 2 KB
MAX_ENTRIES_WITH_TEXTS = 5_000
MAX_TEXT_BYTES = 64 * 1024 * 1024
_PAGE = 25  # compiles read at once, each with all of its artifacts


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
class ReportCompile:
    entry: CompileEntry
    texts: dict[int, int]


def choose_texts(
    connection: sqlite3.Connection, run_id: str, max_bytes: int = MAX_TEXT_BYTES
) -> TextChoice:
    """Choose the texts that fit into a report, in order; a text too large for the remaining space
    is skipped.
    """
    chosen, left_count, left_bytes, room = [], 0, 0, max_bytes
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
    connection: sqlite3.Connection, run_id: str, choice: TextChoice, max_count: int
) -> Iterator[ReportCompile]:
    cursor: str | None = None
    while max_count > 0:
        page = compiles.list_compiles(
            connection, run_id, cursor=cursor, limit=min(_PAGE, max_count)
        )
        steps = trace_files.list_steps(connection, [row.id for row in page.rows])
        texts = _find_texts(
            connection, [step.ref_id for step in steps if step.kind == "artifact"], choice
        )
        for entry in build_entries(page.rows, steps):
            yield ReportCompile(entry, texts)
        max_count, cursor = max_count - len(page.rows), page.next
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


def write_html(
    connection: sqlite3.Connection, contents: Contents, payloads: bool = False
) -> Iterator[bytes]:
    """Yield the report in chunks; with `payloads` it includes the run's graphs and code."""
    template = make_environment().get_template("reports/run/index.html")
    values = _list_values(contents) | _list_directory(connection, contents, payloads)
    yield from join_chunks(
        piece.encode("utf-8", "replace") for piece in template.generate(**values)
    )


def _list_values(contents: Contents) -> dict[str, Any]:
    return {
        "contents": contents,
        "run": contents.run,
        "detail": contents.detail,
        "header": contents.header,
        "live": contents.header.is_live,
        "scripts": list_scripts(charted=False),
        "policy": POLICY,
        "most_parts": MAX_PARTS,
        "version": __version__,
    }


def _list_directory(
    connection: sqlite3.Connection, contents: Contents, payloads: bool
) -> dict[str, Any]:
    run = contents.run
    choice = choose_texts(connection, run.id) if payloads else TextChoice(())
    most = MAX_ENTRIES_WITH_TEXTS if choice.texts else MAX_ENTRIES
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
        "listed_count": min(most, run.compile_count or 0),
        "entries": iterate_entries(connection, run.id, choice, most),
        "loose": list_loose(connection, run.id, choice) if listed else [],
        "choice": choice,
        "texts": iterate_texts(connection, choice),
    }
