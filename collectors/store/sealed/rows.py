"""Which runs are sealed, with rows only in their file."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from compileboard.collectors.store.sealed.files import RunFile

_COLUMNS = "run_id, file_name, digest, size_bytes, unpacked_bytes, emptied_us"
# Of these, nothing of a sealed run stays in the board.
DETAIL = (
    *(
        "graph_breaks",
        "recompiles",
        "guard_failures",
        "failures",
        "cache_lookups",
        "cudagraph_skips",
        "guard_sets",
    ),
    *(
        "aot_graphs",
        "artifacts",
        "symbols",
        "spans",
        "span_totals",
        "lanes",
        "compilations",
        "compiles",
        "events",
    ),
    *("stack_nodes", "trace_files", "trace_pieces"),
)
ROLLUPS = (
    *(
        "run_breaks",
        "run_causes",
        "run_functions",
        "run_summaries",
        "result_values",
        "result_repeats",
        "results",
    ),
)
# What a page of a run reads in its file: these, and what they point to. All else is as the board
# has it.
IN_FILE = (
    *(
        *DETAIL,
        *ROLLUPS,
        "repros",
        "repro_results",
        "repro_storages",
        "search_documents",
        "search_runs",
    ),
    *("payloads", "functions", "distinct_breaks", "recompile_causes", "series", "span_names"),
)


@dataclass(frozen=True)
class SealedRun:
    run_id: str
    file: RunFile
    is_emptied: bool


def get_sealed_run(connection: sqlite3.Connection, run_id: str) -> SealedRun | None:
    row = connection.execute(
        f"select {_COLUMNS} from sealed_runs where run_id = ?",  # noqa: S608 - our own names
        (run_id,),
    ).fetchone()
    return _make(row) if row else None


def has_sealed_runs(connection: sqlite3.Connection) -> bool:
    return connection.execute("select 1 from sealed_runs limit 1").fetchone() is not None


def list_sealed_runs(connection: sqlite3.Connection) -> list[SealedRun]:
    cursor = connection.cursor()
    cursor.row_factory = sqlite3.Row
    return [
        _make(row)
        for row in cursor.execute(f"select {_COLUMNS} from sealed_runs order by run_id")  # noqa: S608 - our own names
    ]


def _make(row: sqlite3.Row) -> SealedRun:
    file = RunFile(row["file_name"], bytes(row["digest"]), row["size_bytes"], row["unpacked_bytes"])
    return SealedRun(row["run_id"], file, bool(row["emptied_us"]))
