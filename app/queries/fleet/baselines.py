"""Stored baselines: what people keep to compare with."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.queries.fields import TimeUs
from compileboard.app.queries.page import Page, decode_cursor, make_page
from compileboard.collectors.store.codec import unpack

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

    name: Annotated[str, "Its name."]
    run_id: Annotated[str | None, "The run that it was last made of; that run may have been deleted."]
    note: Annotated[str | None, "Why it is the baseline."]
    created_us: Annotated[TimeUs, "When it was saved."]
    changed_us: Annotated[TimeUs, "When it was last updated."]


@dataclass(frozen=True)
class Baseline(BaselineRow):
    """Hold one stored baseline; `body` is what `app.checks.keep` wrote."""

    body: dict[str, Any]


def list_baselines(connection: sqlite3.Connection, cursor: str | None = None, limit: int = 1000) -> Page[BaselineRow]:
    """List the stored baselines by name.

    Raises: FilterError if the cursor cannot be used.
    """
    after, _created_us = decode_cursor(cursor, str, int) or ("", 0)
    found = connection.execute(LIST_SQL, {"after": after, "limit": limit + 1})
    return make_page([BaselineRow(**dict(row)) for row in found], limit, lambda row: (row.name, row.created_us))


def get_baseline(connection: sqlite3.Connection, name: str) -> Baseline | None:
    """Return one stored baseline, or None if there is none of that name."""
    row = connection.execute(GET_SQL, {"name": name}).fetchone()
    return Baseline(**(dict(row) | {"body": json.loads(unpack(row["body"]))})) if row else None
