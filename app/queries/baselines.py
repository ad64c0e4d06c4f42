"""Stored baselines: what people keep to compare with."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from collectors.store.codec import unpack

LIST_SQL = """
select name, run_id, note, created_us, changed_us
from baselines
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
    """Hold one stored baseline without what it keeps."""

    name: str
    run_id: str | None
    note: str | None
    created_us: int
    changed_us: int


@dataclass(frozen=True)
class Baseline(BaselineRow):
    """Hold one stored baseline; `body` is what `app.checks.keep` wrote."""

    body: dict[str, Any]


def list_baselines(connection: sqlite3.Connection, limit: int = 1000) -> list[BaselineRow]:
    """List the stored baselines by name."""
    return [BaselineRow(**dict(row)) for row in connection.execute(LIST_SQL, {"limit": limit})]


def get_baseline(connection: sqlite3.Connection, name: str) -> Baseline | None:
    """Return one stored baseline, or None if there is none of that name."""
    row = connection.execute(GET_SQL, {"name": name}).fetchone()
    return Baseline(**(dict(row) | {"body": json.loads(unpack(row["body"]))})) if row else None
