"""A comparison as a file: the numbers of the Compare page in Markdown, CSV, JSON and one offline HTML file."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from compileboard.app.analysis.comparison_model import Comparison
from compileboard.app.analysis.comparison_rows import COLUMNS, comparison_row, list_lines
from compileboard.app.format import format_iso_time
from compileboard.app.reports.comparison_markdown import render_markdown
from compileboard.app.reports.csv import cell
from compileboard.app.reports.json import dump
from compileboard.app.resources import __version__

SCHEMA, VERSION = "compileboard.comparison", 1


def write_comparison(found: Comparison, format: str, written_us: int) -> Iterator[bytes]:
    """Yield a comparison in one of FORMATS, in pieces."""
    if format == "json":
        yield _write_json(found, written_us)
    elif format == "csv":
        yield from _write_csv(found)
    elif format == "parquet":
        from compileboard.app.reports.parquet import write_comparison_parquet

        yield from write_comparison_parquet(found, written_us)
    elif format == "html":
        # Imported here: templates, which no other format needs.
        from compileboard.app.reports.comparison_html import write_html

        yield from write_html(found, written_us)
    else:
        yield render_markdown(found).encode("utf-8", "replace")


def file_name(found: Comparison, format: str) -> str:
    """Name the file that a browser saves."""
    sides = "-to-".join(re.sub(r"[^A-Za-z0-9.]+", "-", it.asked)[:30].strip("-") for it in (found.base, found.new))
    return f"compare-{sides}.{format}"


def _write_json(found: Comparison, written_us: int) -> bytes:
    head = {
        "schema": SCHEMA,
        "version": VERSION,
        "written_by": f"CompileBoard {__version__}",
        "written_at": format_iso_time(written_us),
    }
    return dump(head | comparison_row(found)) + b"\n"


def _write_csv(found: Comparison) -> Iterator[bytes]:
    """Yield a line a model and metric; what is left out has lines of its own, with the reason."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for line in list_lines(found):
        writer.writerow([cell(line.get(name)) for name in COLUMNS])
    yield buffer.getvalue().encode("utf-8", "replace")
