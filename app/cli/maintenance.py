"""`backup`, `restore`, `verify`, `copy` and `prune`. Except for `restore` the database may be
served meanwhile.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

import click

from compileboard.app.cli.common import board_option, read_command_clock
from compileboard.app.core.address import parse_address, read_password
from compileboard.app.core.format import format_bytes, format_plural, format_time
from compileboard.app.core.resources import __version__
from compileboard.app.reports.check_report import one_line
from compileboard.app.reports.output import fail
from compileboard.collectors.store.connection import (
    DATABASE_VERSION,
    find_board,
    open_reader,
    open_writer,
)
from compileboard.collectors.store.tokens import command_origin, record_action
from compileboard.command_line import Command
from compileboard.exit_codes import FAILED

if TYPE_CHECKING:
    from compileboard.collectors.store.pruning import PrunedRun, PruneRule

_DAY_US = 86_400 * 1_000_000
_AGES_US = {"d": _DAY_US, "w": 7 * _DAY_US, "y": 365 * _DAY_US}
_SIZES_BYTES = {
    f"{letter}{unit}": factor**power
    for power, letter in enumerate(("k", "m", "g", "t"), 1)
    for unit, factor in (("b", 1000), ("ib", 1024))
}
BACKUP_NOTES = """\
A backup is a folder: database.db, the deleted runs that can be restored, \
the files of sealed runs, and manifest.json
with checksums. Uploads that wait for their import are left out. \
Servers and recorders go on meanwhile.
Exit codes: 0 done, 1 done without some runs' files, which are damaged or missing, \
2 nothing was written, as of a
damaged database.
"""
RESTORE_NOTES = """\
What was there moves to FILE.replaced-<time>. Stop the servers and recorders of FILE first.
--run-files needs no stop, and changes nothing but the files of sealed runs that are damaged or \
missing.
Exit codes: 0 done, 1 done, and files of sealed runs are missing, 2 nothing was replaced.
"""
VERIFY_NOTES = """\
Checks pages, references, roll-ups against a recount, deleted runs, \
and the checksums of sealed runs and of a backup.
Exit codes: 0 whole, 1 something is wrong, 2 it cannot be read.
"""
COPY_NOTES = """\
SRC may be served meanwhile; what is recorded after the copy began is not in DST. \
It is left as it is.
The copy is made in DST.copying and moved to DST once counts and checksums of every table are \
those of SRC.
Exit codes: 0 the same, 1 they differ, 2 nothing is at DST.
"""
PRUNE_NOTES = """\
Stay: results, totals, summaries, breaks and recompile causes with their counts, tags, notes, \
repros.
Go: events, compiles, artifacts, spans, stacks, trace logs, and texts that no other run has.
Pinned runs, and runs of baselines and open incidents, are not pruned. Back up first: \
nothing undoes this.
Exit codes: 0 done, 1 a sealed run's file is damaged or missing and stays, 2 nothing was pruned.
"""


@click.command(cls=Command, epilog=BACKUP_NOTES)
@click.argument("folder", metavar="DST", help="New folder.")
@board_option
def backup(folder: str, db: str) -> int:
    """Back up a database, even while it is served and recorded into."""
    from compileboard.collectors.store.backup import write_backup

    problems: list[str] = []
    manifest = write_backup(
        db,
        folder,
        program_version=__version__,
        progress=lambda step, done, total: _show_progress(
            f"{step}: {done * 100 // max(total, 1)}%"
        ),
        problems=problems,
    )
    _show_progress("")
    size_bytes = sum(file.size_bytes for file in manifest.files.values())
    runs = format_plural(manifest.row_counts.get("runs", 0), "run")
    trashed = format_plural(
        sum(name.startswith("trash/") for name in manifest.files), "deleted run"
    )
    _print_line(
        f"{folder}: {runs} and {trashed}, {format_bytes(size_bytes)}, as of "
        f"{format_time(manifest.created_us)}"
    )
    for problem in problems:
        fail(f"not in the backup: {problem}")
    return FAILED if problems else 0


@click.command(cls=Command, epilog=RESTORE_NOTES)
@click.argument("folder", metavar="SRC", help="Folder that `backup` wrote.")
@click.option(
    "--run-files",
    is_flag=True,
    help="Only put back files of sealed runs that are damaged or missing.",
)
@board_option
def restore(folder: str, run_files: bool, db: str) -> int:
    """Restore a backup over a database that is not being served."""
    from compileboard.collectors.store.backup import restore_backup

    if run_files:
        return _restore_run_files(folder, db)
    restored = restore_backup(folder, db)
    manifest = restored.manifest
    runs = format_plural(manifest.row_counts.get("runs", 0), "run")
    _print_line(f"{db}: {runs}, as of {format_time(manifest.created_us)}")
    if restored.replaced_path is not None:
        old = format_plural(restored.replaced_run_count or 0, "run")
        _print_line(f"what it replaced, {old}, is at {restored.replaced_path}")
    if manifest.database_version < DATABASE_VERSION:
        _print_line(f"it is of an older version; next: compileboard migrate --db {db}")
    else:
        with closing(open_writer(db, create=False)) as writer:
            record_action(
                writer, "database.restore", os.path.basename(folder.rstrip("/")), command_origin()
            )
    lost_count = manifest.missing_run_files + manifest.missing_trash
    if lost_count:
        _print_line(
            f"the backup lacks files of {format_plural(lost_count, 'run')}: `compileboard "
            "verify` names them, "
            "`restore --run-files` takes them from another backup"
        )
    return FAILED if lost_count else 0


def _restore_run_files(folder: str, db: str) -> int:
    from compileboard.collectors.store.backup import restore_run_files

    restored = restore_run_files(folder, db)
    for run_id in restored.run_ids:
        _print_line(f"run {run_id}: its file is back")
    if restored.run_ids:
        with closing(open_writer(db, create=False)) as writer:
            for run_id in restored.run_ids:
                record_action(writer, "run.restore_file", run_id, command_origin())
    for problem in restored.problems:
        fail(problem)
    if not restored.run_ids and not restored.problems:
        _print_line(f"{db}: no run lacks its file")
    return FAILED if restored.problems else 0


@click.command(cls=Command, epilog=VERIFY_NOTES)
@click.argument(
    "path", metavar="[DB|BACKUP]", required=False, help="What to check. Default: the database."
)
@click.option(
    "--texts",
    is_flag=True,
    help="Also read every text and sealed run, and compare texts with their digest.",
)
@board_option
def verify(path: str | None, texts: bool, db: str) -> int:
    """Check a backup, or a database, even while it is served."""
    from compileboard.collectors.store.verification import verify as verify_store

    problem_count = 0
    for check in verify_store(
        find_board(path) if path else db,
        texts=texts,
        progress=lambda subject: _show_progress(f"{subject} …"),
    ):
        _show_progress("")
        state = (
            f"not checked: {check.skipped}"
            if check.skipped
            else "ok"
            if not check.problems
            else "wrong"
        )
        _print_line(f"{check.subject}: {state}")
        for problem in check.problems:
            _print_line(f"  {problem}")
        problem_count += len(check.problems)
    return FAILED if problem_count else 0


@click.command(cls=Command, epilog=COPY_NOTES)
@click.argument("source", metavar="SRC", help="Database file, or clickhouse:// address.")
@click.argument("target", metavar="DST", help="The same; there must be nothing yet.")
@click.option("--resume", is_flag=True, help="Go on with a copy that was stopped.")
@click.option("--verify-only", is_flag=True, help="Only compare two that are there.")
def copy(source: str, target: str, resume: bool, verify_only: bool) -> int:
    """Copy a database into ClickHouse or back, or to another place, and verify the copy."""
    from compileboard.app.clickhouse.copying import compare_stores, copy_store

    def print_progress(line: str) -> None:
        sys.stderr.write(f"compileboard: {one_line(line)}\n")

    addresses, password = (parse_address(source), parse_address(target)), read_password(os.environ)
    if verify_only:
        comparison = compare_stores(*addresses, password, print_progress)
    else:
        try:
            comparison = copy_store(
                *addresses,
                password=password,
                program_version=__version__,
                origin=command_origin(),
                resume=resume,
                say=print_progress,
            )
        except KeyboardInterrupt:
            print_progress("stopped; --resume goes on")
            raise
    sys.stdout.write(f"{'table':24} {'SRC':>14} {'DST':>14}\n")
    for name, digest in comparison.source.tables.items():
        other = comparison.target.tables.get(name)
        if digest.row_count or digest != other:
            state = "the same" if digest == other else "different"
            sys.stdout.write(
                f"{name:24} {digest.row_count:14,} {other.row_count if other else 0:14,}  {state}\n"
            )
    for difference in comparison.differences:
        _print_line(difference)
    return FAILED if comparison.differences else 0


@click.command(cls=Command, epilog=PRUNE_NOTES)
@click.option("--older-than", metavar="DAYS", help="Runs that started before that, as 180d.")
@click.option("--suite", metavar="NAME", help="Runs of this suite only.")
@click.option(
    "--max-size",
    metavar="SIZE",
    help="Oldest runs first, until the database has this size, as 20GiB.",
)
@click.option("--dry-run", is_flag=True, help="Only list the runs.")
@click.option(
    "--vacuum", is_flag=True, help="Also return the free space to the disk; writers wait meanwhile."
)
@board_option
def prune(
    older_than: str | None,
    suite: str | None,
    max_size: str | None,
    dry_run: bool,
    vacuum: bool,
    db: str,
) -> int:
    """Delete the detail of old runs; totals, results and trends are kept."""
    from compileboard.collectors.store.leases import PRUNE, try_acquire_lease
    from compileboard.collectors.store.pruning import (
        list_prunable,
        measure_free,
        measure_used,
        prune_runs,
    )
    from compileboard.collectors.store.pruning import vacuum as vacuum_database

    if older_than is None and max_size is None:
        return fail("give --older-than, --max-size or both")
    clock = read_command_clock()
    try:
        rule = _read_rule(older_than, max_size, clock.now_us, suite)
    except ValueError as error:
        return fail(str(error))
    open_reader(db).close()  # reports what is wrong with it
    if dry_run:
        with closing(open_reader(db)) as reader:
            runs = list(map(_print_pruned, list_prunable(reader, rule, clock.alive_since_us)))
        _print_line(
            f"would prune {format_plural(len(runs), 'run')}, about {format_bytes(sum(runs))}"
        )
        return 0
    lease = try_acquire_lease(db, PRUNE)
    if lease is None:
        return fail(f"another prune of {db} is under way; try again later")
    with lease, closing(open_writer(db, create=False)) as writer:
        runs, problems = [], list[str]()
        for run in prune_runs(
            writer, rule, clock.alive_since_us, now_us=clock.now_us, problems=problems
        ):
            record_action(
                writer,
                "run.prune_detail",
                run.id,
                command_origin(),
                detail=format_bytes(run.detail_bytes),
            )
            runs.append(_print_pruned(run))
        free_bytes = measure_free(writer)
        _print_line(f"pruned {format_plural(len(runs), 'run')}, about {format_bytes(sum(runs))}")
        used_bytes = measure_used(writer)
        if rule.max_bytes is not None and used_bytes > rule.max_bytes:
            _print_line(f"{format_bytes(used_bytes)} are still used: no other run may be pruned")
        if vacuum:
            vacuum_database(writer)
            _print_line(f"returned {format_bytes(free_bytes)} to the disk")
        elif free_bytes:
            _print_line(
                f"{format_bytes(free_bytes)} of the file are free for new runs; --vacuum "
                "returns them to the disk"
            )
    for problem in problems:
        fail(problem)
    return FAILED if problems else 0


def _read_rule(
    older_than: str | None, max_size: str | None, now_us: int, suite: str | None
) -> PruneRule:
    from compileboard.collectors.store.pruning import PruneRule

    age_us = (
        0
        if older_than is None
        else _read_amount("--older-than", older_than, _AGES_US, "180d or 26w")
    )
    max_bytes = (
        None
        if max_size is None
        else _read_amount("--max-size", max_size, _SIZES_BYTES, "20GiB or 500MB")
    )
    return PruneRule(now_us - age_us, suite, max_bytes)


def _read_amount(option: str, text: str, units: Mapping[str, int], example: str) -> int:
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in units:
        raise ValueError(
            f"{option} is {text[:40]!r}; expected a number with its unit, as {example}"
        )
    return round(float(match[1]) * units[match[2]])


def _print_pruned(run: PrunedRun) -> int:
    suite = run.suite or "no suite"
    _print_line(
        f"{run.id}  {format_time(run.started_us)}  {format_bytes(run.detail_bytes):>9}  "
        f"{run.name} ({suite})"
    )
    return run.detail_bytes


def _print_line(text: str) -> None:
    sys.stdout.write(one_line(text) + "\n")
    sys.stdout.flush()


def _show_progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
