"""API of deleted runs, the audit log, and tokens."""

from __future__ import annotations

from compileboard.app.activity import queries as activity
from compileboard.app.activity.queries import AuditFilter, AuditRow, DeletedRun
from compileboard.app.core import logins
from compileboard.app.core.access import needs
from compileboard.app.core.api import NoBody, PageQuery, find_run, operation
from compileboard.app.core.db import (
    get_clock,
    get_engine,
    get_reader,
    restore_deleted_run,
    revoke_by_id,
)
from compileboard.app.core.logins import TokenRow
from compileboard.app.core.page import Page
from compileboard.app.runs.model import Run, describe_runs


@operation("/deleted_runs")
def list_deleted_runs(page: PageQuery) -> Page[DeletedRun]:
    """List deleted runs that can be restored."""
    return activity.list_deleted_runs(get_reader(), page.cursor, page.limit)


@operation("/deleted_runs/<run_id>/restore", method="POST", body=NoBody)
def restore(run_id: str) -> Run:
    """Restore a deleted run with all its data."""
    restore_deleted_run(run_id)
    return describe_runs(get_engine(), [find_run(run_id).run], get_clock())[0]


@operation("/audit")
def list_audit(selection: AuditFilter, page: PageQuery) -> Page[AuditRow]:
    """List who changed what, and from where."""
    return activity.list_audit(get_reader(), page.cursor, page.limit, selection)


@operation("/tokens")
@needs("admin")
def list_tokens(page: PageQuery) -> Page[TokenRow]:
    """List the tokens of people and machines, newest first, without their secrets."""
    return logins.list_tokens(get_reader(), page.cursor, page.limit)


@operation("/tokens/<token_id>/revoke", method="POST", body=NoBody)
@needs("admin")
def revoke(token_id: str) -> TokenRow:
    """Revoke a token and end its logins."""
    revoke_by_id(token_id)
    return next(token for token in logins.list_tokens(get_reader()).rows if token.id == token_id)
