"""The CSV report: one table of a run in RFC 4180 format, safe to open in a spreadsheet.

The columns are the same for every run; values without a column are JSON in `other_metrics`. A list
is a JSON array, `[]` if empty: an empty cell means not
recorded.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from compileboard.app.queries.repros import ReproRow
from compileboard.app.queries.run.artifacts import ArtifactRow
from compileboard.app.queries.run.compiles import PHASES, Compilation
from compileboard.app.queries.run.graph_breaks import GraphBreakRow
from compileboard.app.queries.run.guards import GuardSet
from compileboard.app.queries.run.recompiles import RecompileRow
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.queries.run.timeline import NameTotal
from compileboard.app.queries.run.trace_files import RejectSum
from compileboard.app.reports.run.tables import BY_NAME, read_rows
from compileboard.app.schema import list_names
from compileboard.collectors.contract.fields import FIELDS
from compileboard.collectors.store.rollups.results import ResultRow

DEFAULT_TABLE = "compilations"
# Full-width too: some spreadsheets read them as the plain ones.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_GUARD = (
    "cache_entry",
    "category",
    "source",
    "reason",
    "expected",
    "actual",
    "suggestion",
    "source_line",
    "line",
)
_CHUNK_CHARACTERS = 64 * 1024


def _names(kind: type, *without: str) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.name not in without]


_RECORD = [
    *_names(Compilation, "metrics", "phases_us"),
    *(f"phase_{phase}_us" for phase in PHASES if phase != "first_calls"),
]
COLUMNS: dict[str, Sequence[str]] = {
    "compilations": (*_RECORD, *(name for name in FIELDS if name not in _RECORD), "other_metrics"),
    "graph_breaks": (*_names(GraphBreakRow), "page_url"),
    "recompiles": (
        *_names(RecompileRow, "guards"),
        "guard_count",
        *(f"guard_{name}" for name in _GUARD),
        "guards",
    ),
    "results": (*_names(ResultRow, "judge"), "gpu"),
    "artifacts": (*_names(ArtifactRow), "meaning"),
    "spans_by_name": list_names(NameTotal),
    "guards": _names(GuardSet),
    "rejects": _names(RejectSum),
    "repros": _names(ReproRow),
}


def cell(value: Any) -> Any:
    """Format one cell: text that a spreadsheet would run as a formula gets a leading apostrophe,
    numbers never do.
    """
    text = flatten_value(value)
    return f"'{text}" if isinstance(text, str) and text.startswith(_FORMULA) else text


def flatten_value(value: Any) -> Any:
    """Return numbers and texts as they are, None as "", and anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, (int, float, str)) else json.dumps(value, ensure_ascii=False)


def flatten_row(table: str, row: dict[str, Any]) -> dict[str, Any]:
    if table == "compilations":
        phases = row.pop("phases_us")
        row |= {f"phase_{phase}_us": time_us for phase, time_us in phases.items()}
        row["other_metrics"] = {
            name: row[name] for name in row if name not in COLUMNS[table]
        } or None
    elif table == "recompiles":
        guards = row["guards"]
        newest = guards[0] if guards else {}
        row |= {f"guard_{name}": newest.get(name) for name in _GUARD} | {"guard_count": len(guards)}
    return row


def write_csv(
    connection: sqlite3.Connection, detail: RunDetail, table: str, source: bool
) -> Iterator[bytes]:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    columns = COLUMNS[table]
    writer.writerow(columns)
    for row in read_rows(connection, detail.run.id, BY_NAME[table], source):
        flat = flatten_row(table, row)
        writer.writerow([cell(flat.get(name)) for name in columns])
        if buffer.tell() >= _CHUNK_CHARACTERS:
            yield buffer.getvalue().encode("utf-8", "replace")
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue().encode("utf-8", "replace")
