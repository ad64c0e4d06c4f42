"""`backup`, `restore` and `verify`: a database kept safe while it is served."""

from __future__ import annotations

import os
import sys
from contextlib import closing

import click

from compileboard.app.cli.common import db_option
from compileboard.app.format import format_bytes, format_count, format_plural, format_time
from compileboard.app.reports.checks import one_line
from compileboard.app.resources import __version__
from compileboard.collectors.store.connection import DATABASE_VERSION, open_writer
from compileboard.collectors.store.dashboard.audit import command_origin, record_action
from compileboard.command_line import Command
from compileboard.exit_codes import FAILED

BACKUP_NOTES = """\
A backup is a folder: database.db, the deleted runs that can be restored, and manifest.json with checksums. Uploads
that wait for their import are left out. Servers and recorders go on meanwhile.
Exit codes: 0 done, 2 nothing was written.
"""
RESTORE_NOTES = """\
What was there moves to FILE.replaced-<time>. Stop the servers and recorders of FILE first.
Exit codes: 0 done, 2 nothing was replaced.
"""
VERIFY_NOTES = """\
Checks pages, references, roll-ups against a recount, deleted runs, and of a backup every file's checksum.
Exit codes: 0 whole, 1 something is wrong, 2 it cannot be read.
"""


@click.command(cls=Command, epilog=BACKUP_NOTES)
@click.argument("folder", metavar="DST", help="New folder.")
@db_option
def backup(folder: str, db: str) -> None:
    """Back up a database, also while it is served and recorded into."""
    from compileboard.collectors.store.maintenance.backup import write_backup

    is_terminal = sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        if is_terminal:
            sys.stderr.write(f"\r{done * 100 // max(total, 1)}% of {format_count(total)} pages")

    manifest = write_backup(db, folder, program_version=__version__, progress=show)
    if is_terminal:
        sys.stderr.write("\r\x1b[K")
    size_bytes = sum(file.size_bytes for file in manifest.files.values())
    runs = format_plural(manifest.row_counts.get("runs", 0), "run")
    trashed = format_plural(len(manifest.files) - 1, "deleted run")
    _print(f"{folder}: {runs} and {trashed}, {format_bytes(size_bytes)}, as of {format_time(manifest.created_us)}")
    if manifest.missing_trash:
        runs = format_plural(manifest.missing_trash, "deleted run")
        _print(f"{runs} could not be kept: the file is gone; `compileboard verify` names them")


@click.command(cls=Command, epilog=RESTORE_NOTES)
@click.argument("folder", metavar="SRC", help="Folder that `backup` wrote.")
@db_option
def restore(folder: str, db: str) -> None:
    """Put a backup in place of a database that is not served."""
    from compileboard.collectors.store.maintenance.backup import restore_backup

    restored = restore_backup(folder, db)
    manifest = restored.manifest
    runs = format_plural(manifest.row_counts.get("runs", 0), "run")
    _print(f"{db}: {runs}, as of {format_time(manifest.created_us)}")
    if restored.replaced_path is not None:
        old = format_plural(restored.replaced_run_count or 0, "run")
        _print(f"what it replaced, {old}, is at {restored.replaced_path}")
    if manifest.database_version < DATABASE_VERSION:
        _print(f"it is of an older version; next: compileboard migrate --db {db}")
    else:
        with closing(open_writer(db, create=False)) as writer:
            record_action(writer, "database.restore", os.path.basename(folder.rstrip("/")), command_origin())


@click.command(cls=Command, epilog=VERIFY_NOTES)
@click.argument("path", metavar="[DB|BACKUP]", required=False, help="What to check. Default: the database.")
@click.option("--texts", is_flag=True, help="Also read every stored text, and compare it with its digest.")
@db_option
def verify(path: str | None, texts: bool, db: str) -> int:
    """Check a database, also while it is served, or a backup."""
    from compileboard.collectors.store.maintenance.verification import verify as verify_store

    problem_count = 0
    for check in verify_store(path or db, texts=texts):
        state = f"not checked: {check.skipped}" if check.skipped else "ok" if not check.problems else "wrong"
        _print(f"{check.subject}: {state}")
        for problem in check.problems:
            _print(f"  {problem}")
        problem_count += len(check.problems)
    return FAILED if problem_count else 0


def _print(text: str) -> None:
    sys.stdout.write(one_line(text) + "\n")
