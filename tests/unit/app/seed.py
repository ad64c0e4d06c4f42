"""Rows for tests of pages, written straight into a real store, with nothing decoded."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

START_US = 1_795_000_000_000_000  # 2026-11-18 16:26:40 UTC

_RUN = {
    "name": "train",
    "suite": None,
    "source": "live",
    "state": "finished",
    "level": "light",
    "keep_source": 1,
    "command": "python train.py --lr 3",
    "cwd": "~/work",
    "ended_us": None,
    "exit_code": 0,
    "signal": None,
    "host": "box-1",
    "gpu_name": "NVIDIA H200",
    "gpu_count": 1,
    "torch_version": "2.11.0",
    "cuda_version": "12.8",
    "python_version": "3.11.9",
    "git_commit": "0123456789abcdef0123456789abcdef01234567",
    "git_branch": "main",
    "git_subject": "Train with warm-up",
    "git_dirty": 0,
    "facts": json.dumps({"argv": ["python", "train.py"]}),
}


def insert(connection: sqlite3.Connection, table: str, **values: Any) -> int:
    """Insert one row; return its rowid."""
    names = ", ".join(values)
    marks = ", ".join(f":{name}" for name in values)
    return (
        connection.execute(f"insert into {table} ({names}) values ({marks})", values).lastrowid or 0
    )


def add_run(
    connection: sqlite3.Connection,
    run_id: str,
    *,
    started_us: int = START_US,
    tags: dict[str, str] | None = None,
    totals: dict[str, int] | None = None,
    **run: Any,
) -> str:
    """Insert a run with its tags and totals; return its id."""
    values = _RUN | {"started_us": started_us, "heartbeat_us": started_us + 60_000_000} | run
    insert(connection, "runs", id=run_id, **values)
    insert(connection, "run_totals", run_id=run_id, **(totals or {}))
    for key, value in (tags or {}).items():
        insert(connection, "run_tags", run_id=run_id, key=key, value=value)
    return run_id


def add_function(
    connection: sqlite3.Connection, name: str = "Model.forward", file: str = "model.py"
) -> int:
    """Insert a function."""
    return insert(connection, "functions", file=file, name=name)


def add_distinct_break(
    connection: sqlite3.Connection, reason: str, function_id: int | None = None, **more: Any
) -> int:
    """Insert a distinct graph break."""
    values = {
        "fingerprint": f"{reason}/{function_id}",
        "hints": "[]",
        "reason": reason,
        "function_id": function_id,
    }
    return insert(connection, "distinct_breaks", **(values | more))
