"""What a store says of itself: whether it can be read, and how much is in it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True)
class Health:
    """The answer of /healthz."""

    schema_version: int
    run_count: int


def get_health(connection: sqlite3.Connection) -> Health:
    """Return the schema's version and how many runs there are: two cheap statements."""
    schema_version = connection.execute("pragma user_version").fetchone()[0]
    return Health(schema_version, connection.execute("select count(*) from runs").fetchone()[0])
