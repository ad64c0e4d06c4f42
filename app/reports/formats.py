"""Write a run's report in any format."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence

from compileboard.app.benchmarks.matrix import ConfigurationResults
from compileboard.app.benchmarks.metrics import BY_NAME as METRICS
from compileboard.app.benchmarks.metrics import format_short
from compileboard.app.core.filters import TEMPLATE_NAMES
from compileboard.app.reports import TABULAR
from compileboard.app.reports.contents import Contents, read_contents
from compileboard.app.reports.csv_report import (
    BY_NAME,
    COLUMNS,
    flatten_row,
    join_chunks,
    read_rows,
    write_csv,
    write_json,
)
from compileboard.app.reports.html import write_html
from compileboard.app.reports.markdown import MAX_TABLE_ROWS, render_markdown
from compileboard.app.runs.run_queries import RunDetail
from compileboard.collectors.store.results import ResultRow


def write_report(
    connection: sqlite3.Connection,
    detail: RunDetail,
    format: str,
    table: str,
    source: bool,
    written_us: int,
    stale_after_s: int,
    payloads: bool = False,
) -> Iterator[bytes]:
    """Yield a run's report in one of FORMATS, in chunks; `table` applies to CSV and Parquet,
    `payloads` to HTML.
    """
    if format == "json":
        yield from join_chunks(write_json(connection, detail, source, written_us, stale_after_s))
    elif format == "csv":
        rows = read_rows(connection, detail.run.id, BY_NAME[table], source)
        yield from write_csv(COLUMNS[table], (flatten_row(table, row) for row in rows))
    elif format == "parquet":
        # Imported here because it is rarely used; pyarrow is loaded when the file is written.
        from compileboard.app.reports.parquet import write_run_parquet

        yield from write_run_parquet(connection, detail, table, source, written_us)
    else:
        contents = read_contents(connection, detail, source, written_us, stale_after_s)
        if format == "html":
            yield from write_html(connection, contents, payloads)
        else:
            yield _write_markdown(contents).encode("utf-8", "replace")


def _write_markdown(contents: Contents) -> str:
    return render_markdown(
        "run/report.md",
        **TEMPLATE_NAMES,
        contents=contents,
        list_within=_list_within,
        most_rows=60,
        most_table_rows=MAX_TABLE_ROWS,
        show_metric=lambda name, value: (
            "–" if value is None else format_short(METRICS[name], value)
        ),
    )


def _list_within(
    configurations: Iterable[ConfigurationResults], limit: int
) -> Iterator[tuple[ConfigurationResults, Sequence[ResultRow]]]:
    """Yield configurations with their first results, `limit` in all."""
    for configuration in configurations:
        rows = configuration.listed[:limit]
        if not rows:
            return
        yield configuration, rows
        limit -= len(rows)


def file_name(detail: RunDetail, format: str, table: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", detail.run.shown_name).strip("-.")[:60] or "run"
    part = f"-{table}" if format in TABULAR else ""
    return f"{name}-{detail.run.id[:10]}{part}.{format}"
