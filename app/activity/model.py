"""Deleted runs that can be restored, and the audit log."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compileboard.app.activity.queries import (
    AuditFilter,
    AuditRow,
    DeletedRun,
    list_actions,
    list_actors,
    list_audit,
    list_deleted_runs,
    list_subject_names,
)
from compileboard.app.core.logins import TokenRow, list_tokens
from compileboard.app.core.page import Page

_ACTIONS = {
    "run.delete": "Run deleted",
    "run.restore": "Run restored",
    "run.send": "Run sent",
    "run.prune": "Run deleted for good",
    "run.prune_detail": "Run's detail pruned",
    "run.restore_file": "Run's file restored",
    "database.restore": "Backup restored",
    "run.annotate": "Run name or note edited",
    "baseline.save": "Baseline saved",
    "baseline.update": "Baseline updated",
    "baseline.delete": "Baseline deleted",
    "incident.acknowledge": "Incident acknowledged",
    "incident.ignore": "Incident ignored",
    "incident.comment": "Comment added",
    "incident.reopen": "Incident reopened",
    "view.save": "View saved",
    "view.rename": "View renamed",
    "view.delete": "View deleted",
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
    subject, _dot, verb = action.partition(".")
    return _ACTIONS.get(action, f"{subject.capitalize()} {verb.replace('_', ' ')}")


@dataclass(frozen=True)
class ActivityScreen:
    deleted: Page[DeletedRun]
    changes: Page[AuditRow]
    selection: AuditFilter
    names: Mapping[str, str]
    actors: Sequence[str]
    actions: Sequence[tuple[str, str]]
    tokens: Sequence[TokenRow]


def build_activity(
    reader: sqlite3.Connection,
    selection: AuditFilter,
    cursor: str | None,
    limit_count: int,
    *,
    has_tokens: bool,
) -> ActivityScreen:
    changes = list_audit(reader, cursor, limit_count, selection)
    subjects = [
        *(change.subject for change in changes.rows),
        *([selection.subject] if selection.subject else []),
    ]
    return ActivityScreen(
        list_deleted_runs(reader, None, limit_count),
        changes,
        selection,
        list_subject_names(reader, subjects),
        list_actors(reader),
        [(action, label_action(action)) for action in list_actions(reader)],
        list_tokens(reader).rows if has_tokens else (),
    )
