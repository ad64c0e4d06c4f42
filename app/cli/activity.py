"""`trash` and `audit`: delete, restore and prune runs, and list who changed what."""

from __future__ import annotations

import sys
from contextlib import closing

import click

from compileboard.app.cli.common import board_option, read_command_clock
from compileboard.app.comparison.sides import need_run
from compileboard.app.core.format import format_plural, format_time
from compileboard.app.core.page import FilterError
from compileboard.app.core.store import open_store
from compileboard.app.reports.check_report import one_line
from compileboard.app.reports.output import fail
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.search import index_run
from compileboard.collectors.store.tokens import command_origin, record_action
from compileboard.collectors.store.trash import CannotRestore, delete_run, prune_trash, restore_run
from compileboard.command_line import Command, Group

DAY_US = 86_400 * 1_000_000


@click.group(
    cls=Group,
    epilog="Exit codes: 0 done, 2 not done: no such run or database, or not to be restored.\n",
)
def trash() -> None:
    """Delete runs.

    A deleted run can be restored for a week; `serve` and `trash prune` then delete it permanently.
    """


@trash.command("list")
@board_option
def list_deleted(db: str) -> None:
    """List the deleted runs that can be restored."""
    from compileboard.app.activity.queries import list_deleted_runs

    with closing(open_reader(db)) as reader:
        for run in list_deleted_runs(reader, limit=1000).rows:
            _print_line(
                f"{run.run_id}  deleted {format_time(run.deleted_us)}  until "
                f"{format_time(run.expires_us)}  {run.name}"
            )


@trash.command()
@click.argument("run", metavar="RUN", help="Run's ID or commit, its beginning, or latest.")
@board_option
def delete(run: str, db: str) -> int:
    """Delete a run."""
    try:
        with closing(open_store(db)) as store:
            run = need_run(store, read_command_clock(), run).id
    except FilterError as error:
        return fail(str(error))
    with closing(open_writer(db, create=False)) as writer:
        if not delete_run(writer, run):
            return fail(f"there is no run {run[:80]!r}")
        record_action(writer, "run.delete", run, command_origin())
    _print_line(f"deleted; for a week, this brings it back: compileboard trash restore {run}")
    return 0


@trash.command()
@click.argument("run", metavar="RUN", help="Deleted run's ID.")
@board_option
def restore(run: str, db: str) -> int:
    """Restore a deleted run."""
    open_reader(db).close()  # reports what is wrong with it
    with closing(open_writer(db, create=False)) as writer:
        try:
            restored = restore_run(writer, run)
        except CannotRestore as error:
            return fail(str(error))
        if not restored:
            return fail(f"no deleted run {run[:80]!r}; `compileboard trash list` lists all")
        record_action(writer, "run.restore", run, command_origin())
        index_run(writer, run)
    _print_line("restored")
    return 0


@trash.command()
@click.option(
    "--days",
    type=int,
    default=7,
    metavar="N",
    help="Minimum days since the run was deleted. Default: 7.",
)
@board_option
def prune(days: int, db: str) -> int:
    """Permanently delete runs that have been in the trash for at least --days days."""
    if days < 0:
        return fail(f"--days is {days}; expected 0 or more")
    open_reader(db).close()  # reports what is wrong with it
    with closing(open_writer(db, create=False)) as writer:
        pruned = prune_trash(writer, age_us=days * DAY_US)
        for run_id in pruned:
            record_action(writer, "run.prune", run_id, command_origin())
    _print_line(f"deleted for good: {format_plural(len(pruned), 'run')}")
    return 0


@click.command(cls=Command)
@board_option
@click.option("--subject", metavar="ID", help="Only changes of this run, incident or baseline.")
@click.option("--by", metavar="NAME", help="Only changes by this person, token or user@host.")
@click.option(
    "--limit", type=int, default=50, metavar="N", help="Most changes to list. Default: 50."
)
def audit(db: str, subject: str | None, by: str | None, limit: int) -> None:
    """List who changed what, newest first."""
    from compileboard.app.activity.queries import AuditFilter, list_audit

    with closing(open_reader(db)) as reader:
        for change in list_audit(reader, limit=limit, selection=AuditFilter(subject, by)).rows:
            author = change.actor or change.address or "not recorded"
            what = (
                f"{change.action:<16} "
                f"{change.subject}{f'  {change.detail}' if change.detail else ''}"
            )
            _print_line(f"{format_time(change.time_us)}  {what}  ({author}, {change.channel})")


def _print_line(text: str) -> None:
    sys.stdout.write(one_line(text) + "\n")
