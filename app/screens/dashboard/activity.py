"""Activity: deleted runs that can be put back, and who changed what."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from compileboard.app.queries.dashboard.activity import AuditRow, DeletedRun, list_audit, list_deleted_runs
from compileboard.app.queries.page import Page


@dataclass(frozen=True)
class ActivityScreen:
    """The newest deleted runs and one page of changes, all or those of one subject."""

    deleted: Page[DeletedRun]
    changes: Page[AuditRow]
    subject: str | None


def build_activity(
    reader: sqlite3.Connection, subject: str | None, cursor: str | None, limit_count: int
) -> ActivityScreen:
    """Build the newest deleted runs and one page of changes.

    Raises: FilterError if the cursor cannot be used.
    """
    changes = list_audit(reader, cursor, limit_count, subject)
    return ActivityScreen(list_deleted_runs(reader, None, limit_count), changes, subject)
