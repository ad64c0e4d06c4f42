"""Deleted runs, and who changed what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from compileboard.app.api.answers import NoBody, PageQuery, find_run, operation
from compileboard.app.db import get_clock, get_engine, get_reader, restore_deleted_run
from compileboard.app.queries.dashboard import activity
from compileboard.app.queries.dashboard.activity import AuditRow, DeletedRun
from compileboard.app.queries.page import Page
from compileboard.app.screens.fleet.runs import RunJson, describe_runs


@dataclass(frozen=True)
class AuditFilter:
    """Which changes."""

    subject: Annotated[str | None, "The ID of the subject: a run's, an incident's, a baseline's name."] = None


@operation("/deleted_runs")
def list_deleted_runs(page: PageQuery) -> Page[DeletedRun]:
    """List deleted runs that can be put back."""
    return activity.list_deleted_runs(get_reader(), page.cursor, page.limit)


@operation("/deleted_runs/<run_id>/restore", method="POST", body=NoBody)
def restore(run_id: str) -> RunJson:
    """Put a deleted run back, with all that belongs to it."""
    restore_deleted_run(run_id)
    return describe_runs(get_engine(), [find_run(run_id).run], get_clock())[0].row


@operation("/audit")
def list_audit(selection: AuditFilter, page: PageQuery) -> Page[AuditRow]:
    """List who changed what, and from where."""
    return activity.list_audit(get_reader(), page.cursor, page.limit, selection.subject)
