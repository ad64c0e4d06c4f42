"""Read damaged CSV files into rows by column name and count the damage by line."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compileboard.collectors.contract.rejects import Rejects

_LINE = re.compile(
    r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+"
)  # not str.splitlines: a cell may hold its other line ends
_CONFLICT = re.compile(r"(?:<{7}|>{7}|\|{7})(?: |$)|={7}$")
# How a row begins that has texts of several lines: what follows a damaged one is found again by
# this alone.
_TEXT_ROW = re.compile(r'[^",\s][^",]*,"')
_MOST_ROW_LINES = 5_000
# Each is looked for up to _MOST_ROW_LINES; a file that is full of them ends a row at its line
_MOST_OPEN_QUOTES = 20
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


@dataclass(frozen=True)
class CsvRow:
    line: int
    cells: dict[str, str]


def clean(text: str) -> str:
    """Remove lone surrogates and NUL characters, which not every database accepts."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def decode(data: bytes, rejects: Rejects) -> str:
    encoding = next((name for mark, name in _BOMS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        text = data.decode(encoding, "replace")
        bad = max(1, text.count("\N{REPLACEMENT CHARACTER}"))
        rejects.add("bad_utf8", line, data[max(0, error.start - 40) : error.start + 40], bad)
        return text


def read_rows(text: str, rejects: Rejects) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and cells of each row; skips blank lines and merge-conflict markers."""
    lines = _LINE.findall(text)
    at = open_quotes = width = 0
    has_texts = False
    while at < len(lines):
        line = lines[at].rstrip("\r\n")
        if not line.strip():
            at += 1
            continue
        if _CONFLICT.match(line):
            rejects.add("conflict_marker", at + 1, line)
            at += 1
            continue
        most = 1 if open_quotes >= _MOST_OPEN_QUOTES else _MOST_ROW_LINES
        cells, taken = _take(lines, at, most)
        # A quote that is never closed takes what follows with it: that is not one row, and costs
        # its own line only.
        if cells is None or (taken > 1 and width and len(cells) != width):
            open_quotes += taken > 1 or cells is None
            cells, taken = _take(lines, at, 1) if cells is not None else (None, 1)
        if cells is None:
            begun = at
            at += 1
            while has_texts and at < len(lines) and not _TEXT_ROW.match(lines[at]):
                at += 1
            rejects.add(
                "truncated" if has_texts and at == len(lines) else "bad_row", begun + 1, line
            )
            continue
        has_texts |= not width and "reason" in cells
        width = width or len(cells)
        yield at + 1, [clean(cell) for cell in cells]
        at += taken


def _take(lines: Sequence[str], at: int, most: int) -> tuple[list[str] | None, int]:
    taken, is_open = 1, lines[at].count('"') % 2
    while is_open and taken < most and at + taken < len(lines):
        is_open ^= lines[at + taken].count('"') % 2
        taken += 1
    reader = csv.reader(lines[at : at + taken], strict=True)
    try:
        return next(
            reader
        ), reader.line_num  # a quote inside a cell that has none around it opens nothing
    except (csv.Error, StopIteration):
        return None, taken


def read_table(text: str, rejects: Rejects) -> tuple[list[str], Iterator[CsvRow]]:
    """Return the columns and rows of a table.

    A row with another number of cells than the header is rejected, because its columns cannot be
    assigned. A repeated header, as in concatenated files, applies from there on.
    """
    rows = read_rows(text, rejects)
    first = next(rows, None)
    if first is None:
        return [], iter(())
    columns = _name_columns(first[1], first[0], rejects)
    return columns, _rows(rows, columns, text, rejects)


def _rows(
    rows: Iterator[tuple[int, list[str]]], columns: list[str], text: str, rejects: Rejects
) -> Iterator[CsvRow]:
    last_line = len(_LINE.findall(text))
    whole = text.endswith(("\n", "\r"))
    for line, cells in rows:
        if [cell.strip() for cell in cells[:2]] == columns[:2] and len(cells) > 1:
            columns = _name_columns(cells, line, rejects)
        elif len(cells) == len(columns):
            yield CsvRow(line, dict(zip(columns, cells, strict=True)))
        elif len(cells) < len(columns) and line == last_line and not whole:
            rejects.add("truncated", line, ",".join(cells))
        else:
            rejects.add("bad_row", line, ",".join(cells))


def _name_columns(cells: list[str], line: int, rejects: Rejects) -> list[str]:
    columns: dict[str, None] = {}
    counts: dict[str, int] = {}
    for cell in cells:
        name = base = cell.strip()
        while name in columns:
            counts[base] = counts.get(base, 1) + 1
            name = f"{base} ({counts[base]})"
        if name != base:
            rejects.add("duplicate_column", line, base)
        columns[name] = None
    return list(columns)
