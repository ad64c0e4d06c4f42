"""One run as stored in the tables across runs, read from SQLite in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from compileboard.app.queries.fleet.trends import DRIVER_VERSION, TRITON_VERSION
from compileboard.collectors.store.rollups.totals import RUN_COLUMNS

Values = tuple[Any, ...]

_RUN = (
    *(
        "id",
        "name",
        "suite",
        "source",
        "state",
        "level",
        "keep_source",
        "command",
        "cwd",
        "started_us",
        "ended_us",
    ),
    *(
        "heartbeat_us",
        "exit_code",
        "signal",
        "host",
        "gpu_name",
        "gpu_count",
        "torch_version",
        "cuda_version",
    ),
    *("python_version", "git_commit", "git_branch", "git_subject", "git_dirty", "stack_room"),
)
_ANNOTATION = ("title", "note", "pinned", "changed_us")
# What a row of a run has, in this order, beside its publication and its tags.
RUN_NAMES = (*_RUN, "driver_version", "triton_version", *_ANNOTATION, *RUN_COLUMNS)
_RUN_SQL = f"""
select
  {", ".join(f"r.{name}" for name in _RUN)},
  {DRIVER_VERSION} as driver_version, {TRITON_VERSION} as triton_version,
  a.title, a.note, coalesce(a.pinned, 0) as pinned, a.changed_us,
  {", ".join(f"coalesce(t.{name}, 0) as {name}" for name in RUN_COLUMNS)},
  r.pub
from runs as r
left join run_totals as t on t.run_id = r.id
left join run_annotations as a on a.run_id = r.id
where r.id = :run_id
"""  # noqa: S608  own names only
_TAGS_SQL = "select key, value from run_tags where run_id = :run_id order by key"
_NUMBERS = (
    *(
        "speedup",
        "speedup_low",
        "speedup_high",
        "abs_latency_ms",
        "eager_latency_ms",
        "compilation_latency_s",
    ),
    *("warm_compilation_latency_s", "compression_ratio", "eager_peak_mem_gb", "dynamo_peak_mem_gb"),
    *(
        "cache_lookup_latency_us",
        "calls_captured",
        "unique_graphs",
        "graph_breaks",
        "unique_graph_breaks",
    ),
    *(
        "recompiles",
        "fallbacks_to_eager",
        "autograd_captures",
        "autograd_compiles",
        "cudagraph_skips",
    ),
)
_LATER_NUMBERS = (
    *(
        "export_latency_s",
        "load_latency_s",
        "second_process_latency_s",
        "package_bytes",
        "scaling_efficiency",
    ),
    *("output_error", "quantized_error", "quantized_eager_error"),
)
# The roll-ups of a run, without its id: the columns of each table there and here.
ROLLUPS: dict[str, tuple[str, ...]] = {
    "run_breaks": ("distinct_id", "break_count", "compile_us"),
    "run_causes": ("cause_id", "guard_failure_count", "recompile_count", "compile_us"),
    "run_functions": (
        *(
            "function_id",
            "compile_count",
            "graph_break_count",
            "recompile_count",
            "recompile_limit_count",
        ),
        "compile_us",
    ),
    "run_summaries": (
        *(
            "suite",
            "mode",
            "dtype",
            "device",
            "hardware",
            "backend",
            "dynamic",
            "world_size",
            "definition",
            "time_us",
        ),
        *(
            "total_count",
            "measured_count",
            "failed_count",
            "passed_count",
            "speedup_count",
            "geomean_speedup",
        ),
        *("compilation_latency_s", "abs_latency_ms", "compression_ratio", "dynamo_peak_mem_gb"),
        *(
            "graph_breaks_per_model",
            "recompiles_per_model",
            "load_latency_s",
            "package_bytes",
            "scaling_efficiency",
        ),
        "quantized_error",
    ),
    "results": (
        *(
            "id",
            "series_id",
            "experiment",
            "process_id",
            "sequence",
            "task",
            "status",
            "reason",
            "accuracy",
        ),
        *(
            *_NUMBERS,
            "message",
            "time_us",
            "started_us",
            "duration_us",
            "command",
            "origin",
            *_LATER_NUMBERS,
        ),
    ),
}
# Things by the id of their content, and what tells one from another of the same id.
THINGS: dict[str, tuple[str, ...]] = {
    "functions": ("id", "file", "name"),
    "distinct_breaks": (
        *(
            "id",
            "fingerprint",
            "gb_id",
            "gb_type",
            "reason",
            "explanation",
            "hints",
            "function_id",
            "source_line",
        ),
        "line",
    ),
    "recompile_causes": (
        "id",
        "fingerprint",
        "category",
        "source",
        "reason",
        "suggestion",
        "function_id",
    ),
    "series": (
        *(
            "id",
            "suite",
            "model",
            "mode",
            "dtype",
            "device",
            "hardware",
            "backend",
            "dynamic",
            "batch_size",
        ),
        "world_size",
    ),
}
_POINTING = {
    "functions": (
        "select function_id from run_functions where run_id = :run_id",
        "select d.function_id from run_breaks as b join distinct_breaks as d on d.id = "
        "b.distinct_id "
        "where b.run_id = :run_id",
        "select d.function_id from run_causes as b join recompile_causes as d on d.id = b.cause_id "
        "where b.run_id = :run_id",
    ),
    "distinct_breaks": ("select distinct_id from run_breaks where run_id = :run_id",),
    "recompile_causes": ("select cause_id from run_causes where run_id = :run_id",),
    "series": ("select series_id from results where run_id = :run_id",),
}


@dataclass(frozen=True)
class RunSnapshot:
    """Shape: run: RUN_NAMES; rollups: by table, ROLLUPS; things: by table, THINGS"""

    run_id: str
    run_pub: int  # runs.pub there
    run: Values
    tags: dict[str, str]
    rollups: dict[str, list[Values]] | None = None
    things: dict[str, list[Values]] | None = None

    def get(self, name: str) -> Any:
        return self.run[RUN_NAMES.index(name)]

    @property
    def month(self) -> int:
        return month_of(self.get("started_us"))

    @property
    def row_count(self) -> int:
        return sum(len(rows) for rows in (self.rollups or {}).values())


def month_of(started_us: int) -> int:
    """Return the UTC month of a time, clamped to the first or last possible one."""
    try:
        started = datetime.fromtimestamp(started_us // 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return 999912 if started_us > 0 else 101
    return started.year * 100 + started.month


def read_run(
    connection: sqlite3.Connection, run_id: str, *, with_rollups: bool = True
) -> RunSnapshot | None:
    key = {"run_id": run_id}
    with _one_state(connection):
        rows = _read(connection, _RUN_SQL, key)
        if not rows:
            return None
        (*run, pub) = rows[0]
        tags: dict[str, str] = dict(_read(connection, _TAGS_SQL, key))
        rollups, things = read_rollups(connection, run_id) if with_rollups else (None, None)
    return RunSnapshot(run_id, pub, tuple(run), tags, rollups, things)


def read_rollups(
    connection: sqlite3.Connection, run_id: str
) -> tuple[dict[str, list[Values]], dict[str, list[Values]]]:
    key = {"run_id": run_id}
    rollups = {
        table: _read(
            connection,
            f"select {', '.join(names)} from {table} where run_id = :run_id",  # noqa: S608 - our own names
            key,
        )
        for table, names in ROLLUPS.items()
    }
    return rollups, {table: _read(connection, _things_sql(table), key) for table in THINGS}


def _things_sql(table: str) -> str:
    return (
        f"select {', '.join(THINGS[table])} from {table} where id in "  # noqa: S608 - our own names
        f"({' union '.join(_POINTING[table])})"
    )


def _read(connection: sqlite3.Connection, sql: str, values: dict[str, str]) -> list[Values]:
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(sql, values).fetchall()


@contextmanager
def _one_state(connection: sqlite3.Connection) -> Iterator[None]:
    if connection.in_transaction:
        yield
        return
    connection.execute("begin")
    try:
        yield
    finally:
        connection.execute("rollback")


def list_columns(table: str) -> Sequence[str]:
    return (
        *(
            ("month", "pub", "run_id")
            if table == "results"
            else ("month", "pub", "started_us", "run_id")
        ),
        *ROLLUPS[table],
    )
