"""The writer of each report format."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

from compileboard.app.reports import TABULAR
from compileboard.app.reports.contents import read_contents
from compileboard.app.reports.html import write_html
from compileboard.app.reports.run_markdown import render_markdown
from compileboard.app.reports.text import write_csv, write_json
from compileboard.app.runs.run_queries import RunDetail


def write_report(
    connection: sqlite3.Connection,
    detail: RunDetail,
    format: str,
    table: str,
    source: bool,
    written_us: int,
    *,
    stale_after_s: int,
    payloads: bool = False,
) -> Iterator[bytes]:
    """Yield a run's report in one of FORMATS, in chunks; `table` applies to CSV and Parquet,
    `payloads` to HTML.
    """
    if format == "json":
        yield from write_json(connection, detail, source, written_us, stale_after_s)
    elif format == "csv":
        yield from write_csv(connection, detail, table, source)
    elif format == "parquet":
        # Imported here, as few ask for it; it loads pyarrow when the file is written.
        from compileboard.app.reports.parquet import write_run_parquet

        yield from write_run_parquet(connection, detail, table, source, written_us)
    else:
        contents = read_contents(connection, detail, source, written_us, stale_after_s)
        if format == "html":
            yield from write_html(connection, contents, payloads)
        else:
            yield render_markdown(contents).encode("utf-8", "replace")


def file_name(detail: RunDetail, format: str, table: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", detail.run.shown_name).strip("-.")[:60] or "run"
    part = f"-{table}" if format in TABULAR else ""
    return f"{name}-{detail.run.id[:10]}{part}.{format}"
