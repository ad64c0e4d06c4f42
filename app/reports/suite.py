"""A suite over a period as a file: the numbers of /trends and /compare in one offline HTML file, Markdown or tables."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterator

from compileboard.app.analysis.suite_period import SuitePeriod
from compileboard.app.analysis.suite_tables import SUITE_TABLES, suite_period_row
from compileboard.app.format import format_iso_time
from compileboard.app.reports import TABULAR
from compileboard.app.reports.csv import cell
from compileboard.app.reports.json import dump
from compileboard.app.resources import __version__

SCHEMA, VERSION = "compileboard.suite", 1


def write_suite(found: SuitePeriod, format: str, written_us: int, table: str) -> Iterator[bytes]:
    """Yield a suite over a period in one of FORMATS, in pieces; `table` is csv's and parquet's."""
    if format == "json":
        yield _write_json(found, written_us)
    elif format == "csv":
        yield _write_csv(found, table)
    elif format == "parquet":
        from compileboard.app.reports.parquet import write_suite_parquet

        yield from write_suite_parquet(found, table, written_us)
    elif format == "html":
        # Imported here: templates, which no other format needs.
        from compileboard.app.reports.suite_html import write_html

        yield write_html(found, written_us)
    else:
        from compileboard.app.reports.suite_markdown import render_markdown

        yield render_markdown(found, written_us).encode("utf-8", "replace")


def name_part(text: str) -> str:
    """Make a part of a file's name of other people's words; what had to change brings a hash, so none fall together."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:60]
    if plain == text:
        return plain
    return "-".join(filter(None, (plain, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:6])))


def file_name(found: SuitePeriod, format: str, table: str) -> str:
    """Name the file that a browser saves: suite, first day and last."""
    first, last = found.period.days
    part = f"-{table}" if format in TABULAR else ""
    return f"{name_part(found.chosen.suite)}-{first}-{last}{part}.{format}"


def _write_json(found: SuitePeriod, written_us: int) -> bytes:
    head = {
        "schema": SCHEMA,
        "version": VERSION,
        "written_by": f"CompileBoard {__version__}",
        "written_at": format_iso_time(written_us),
    }
    return dump(head | suite_period_row(found)) + b"\n"


def _write_csv(found: SuitePeriod, table: str) -> bytes:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    columns = SUITE_TABLES[table].columns
    writer.writerow(columns)
    for row in SUITE_TABLES[table].list(found):
        writer.writerow([cell(row.get(name)) for name in columns])
    return buffer.getvalue().encode("utf-8", "replace")
