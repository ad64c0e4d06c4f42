"""Stored baselines."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from compileboard.app.core.page import FilterError, Page, decode_cursor, make_page
from compileboard.collectors.contract.result_columns import STORE_NAMES
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.results import NUMBERS, ResultRow, fill

BASELINE_VERSION = 1

LIST_SQL = """
select name, run_id, note, created_us, changed_us
from baselines
where name > :after
order by name
limit :limit
"""
GET_SQL = """
select name, run_id, note, created_us, changed_us, body
from baselines
where name = :name
"""


@dataclass(frozen=True)
class BaselineRow:
    """A stored baseline."""

    tables = ("baselines",)

    name: str
    run_id: str | None
    note: str | None
    created_us: int
    changed_us: int


@dataclass(frozen=True)
class Baseline(BaselineRow):
    body: dict[str, Any]


def list_baselines(
    connection: sqlite3.Connection, cursor: str | None = None, limit: int = 1000
) -> Page[BaselineRow]:
    """Raises FilterError for an unusable cursor."""
    after, _created_us = decode_cursor(cursor, str, int) or ("", 0)
    rows = connection.execute(LIST_SQL, {"after": after, "limit": limit + 1})
    return make_page(
        [BaselineRow(**dict(row)) for row in rows], limit, lambda row: (row.name, row.created_us)
    )


def get_baseline(connection: sqlite3.Connection, name: str) -> Baseline | None:
    row = connection.execute(GET_SQL, {"name": name}).fetchone()
    return Baseline(**(dict(row) | {"body": json.loads(unpack(row["body"]))})) if row else None


_UNSAVED: dict[str, Any] = {column.name: None for column in fields(ResultRow)}
_UNSAVED |= {
    "run_id": "",
    "id": 0,
    "time_us": 0,
    "dynamic": False,
    "world_size": 1,
    "status": "measured",
}
_UNSAVED |= {"experiments": ("performance",), "tasks": ()}


def read_baseline_rows(body: Mapping[str, Any], title: str) -> list[ResultRow]:
    """Missing fields are None. Raises FilterError if a newer CompileBoard wrote the baseline."""
    version = body.get("version")
    if version != BASELINE_VERSION:
        raise FilterError(
            f"baseline: {title} has version {version}, this knows {BASELINE_VERSION}; upgrade "
            "CompileBoard"
        )
    results = []
    for row in body["rows"]:
        cells = {STORE_NAMES.get(name, name): cell for name, cell in row["cells"].items()}
        numbers = {
            name: cells[name]
            for name in (*NUMBERS, "status", "reason", "accuracy")
            if name in cells
        }
        series = {name: value for name, value in row["series"].items() if name in _UNSAVED}
        results.append(fill(ResultRow, _UNSAVED | series | numbers | {"model": row["name"]}))
    return results
