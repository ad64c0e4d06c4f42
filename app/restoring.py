"""Put a deleted run back, for the page and the API alike."""

from __future__ import annotations

from flask import abort

from compileboard.app.db import get_settings, writing
from compileboard.app.indexing import start_indexing
from compileboard.collectors.store.trash import CannotRestore, restore_run


def restore_deleted_run(run_id: str) -> None:
    """Put a deleted run back and into the search index; answer 404 or 409 in words where that cannot be."""
    try:
        with writing("run.restore", run_id) as connection:
            restored = restore_run(connection, run_id)
    except CannotRestore as error:
        abort(409, f"Nothing was restored: {error}.")
    if not restored:
        abort(404, f"There is no run {run_id[:80]} among the deleted ones.")
    start_indexing(get_settings().db)
