"""Activity: deleted runs that can be put back, and who changed what."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from compileboard.app.queries.dashboard.activity import (
    AuditRow,
    DeletedRun,
    list_audit,
    list_deleted_runs,
    list_subject_names,
)
from compileboard.app.queries.page import Page

_ACTIONS = {
    "run.delete": "Run deleted",
    "run.restore": "Run restored",
    "run.prune": "Run deleted for good",
    "run.annotate": "Run name or note edited",
    "baseline.save": "Baseline saved",
    "baseline.update": "Baseline updated",
    "baseline.delete": "Baseline deleted",
    "incident.acknowledge": "Incident acknowledged",
    "incident.ignore": "Incident ignored",
    "incident.comment": "Comment added",
    "incident.reopen": "Incident reopened",
    "token.create": "Token created",
    "token.revoke": "Token revoked",
    "login.start": "Logged in",
    "login.end": "Logged out",
    "finding.acknowledge": "Incident acknowledged",
    "finding.ignore": "Incident ignored",
    "finding.note": "Comment added",
    "finding.reopen": "Incident reopened",
}


def label_action(action: str) -> str:
    """Return what was done, in words: Run restored."""
    subject, _dot, verb = action.partition(".")
    return _ACTIONS.get(action, f"{subject.capitalize()} {verb.replace('_', ' ')}")


@dataclass(frozen=True)
class ActivityScreen:
    """The newest deleted runs and one page of changes, all or those of one subject; `names` are of their subjects."""

    deleted: Page[DeletedRun]
    changes: Page[AuditRow]
    subject: str | None
    names: Mapping[str, str]


def build_activity(
    reader: sqlite3.Connection, subject: str | None, cursor: str | None, limit_count: int
) -> ActivityScreen:
    """Build the newest deleted runs and one page of changes.

    Raises: FilterError if the cursor cannot be used.
    """
    changes = list_audit(reader, cursor, limit_count, subject)
    names = list_subject_names(reader, [change.subject for change in changes.rows])
    return ActivityScreen(list_deleted_runs(reader, None, limit_count), changes, subject, names)
