"""Runs that were deleted, and who did so."""

from __future__ import annotations

import sqlite3

from compileboard.collectors.store.tokens import ActionOrigin, create_token, record_action
from compileboard.collectors.store.trash import delete_run
from tests.unit.app.seed import add_run


def delete_and_audit(store: sqlite3.Connection) -> None:
    """Delete three runs, as a page, a command and a client of the API would."""
    origins = (
        ActionOrigin("page", address="127.0.0.1", user_agent="a browser"),
        ActionOrigin("command", "ann@box"),
        ActionOrigin("api"),
    )
    for number, origin in enumerate(origins):
        add_run(store, f"D{number}")
        delete_run(store, f"D{number}", now_us=1_795_000_000_000_000 + number)
        record_action(
            store, "run.delete", f"D{number}", origin, detail=None if number else "of no use"
        )
    for name in ("ann", "box-1", "box-2"):
        create_token(store, name, ("ingest",), created_by="ann@box")
