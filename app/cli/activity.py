"""`trash` and `audit`: delete, restore and prune runs, and list who changed what."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

from compileboard.app.checks.formats import one_line
from compileboard.app.format import format_plural, format_time
from compileboard.app.settings import load_settings
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.dashboard.audit import command_origin, record_action
from compileboard.collectors.store.dashboard.trash import CannotRestore, delete_run, prune_trash, restore_run
from compileboard.collectors.store.search_index import index_run

DAY_US = 86_400 * 1_000_000


def add_parser(commands: Any) -> None:
    """Describe both to the command line."""
    trash = commands.add_parser(
        "trash",
        help="delete runs, restore deleted ones, or delete those for good",
        description="Delete runs. A deleted run can be restored for a week; `serve` and `trash prune` then delete it "
        "for good.",
        epilog="Exit codes: 0 done, 1 there is no such run, or it cannot be restored.",
    )
    actions = trash.add_subparsers(dest="action", required=True, metavar="ACTION", help="What to do.")
    _add(actions, "list", "list the deleted runs that can be restored", _list_deleted)
    for name, text, function in (
        ("delete", "delete a run", _delete),
        ("restore", "put a deleted run back", _restore),
    ):
        _add(actions, name, text, function).add_argument("run", metavar="RUN", help="The run's id.")
    prune = _add(actions, "prune", "delete for good what was deleted some days ago", _prune)
    prune.add_argument("--days", type=int, default=7, metavar="N", help="How many days ago at least. Default: 7.")
    audit = commands.add_parser(
        "audit", help="list who changed what", description="List who changed what, newest first."
    )
    audit.add_argument("--db", metavar="FILE", help="The database file. Default: compileboard.db.")
    audit.add_argument("--subject", metavar="ID", help="Only changes of this run, finding or baseline.")
    audit.add_argument("--limit", type=int, default=50, metavar="N", help="How many. Default: 50.")
    audit.set_defaults(function=_list_audit)


def _add(actions: Any, name: str, text: str, function: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text.capitalize() + ".")
    parser.add_argument("--db", metavar="FILE", help="The database file. Default: compileboard.db.")
    parser.set_defaults(function=function)
    return parser


def _path(arguments: argparse.Namespace) -> str:
    path = load_settings(os.environ, {"db": arguments.db}).db
    open_reader(path).close()  # says what is wrong with it
    return path


def _list_deleted(arguments: argparse.Namespace) -> int:
    from compileboard.app.queries.fleet.activity import list_deleted_runs

    with closing(open_reader(_path(arguments))) as reader:
        for run in list_deleted_runs(reader, limit=1000).rows:
            _print(
                f"{run.run_id}  deleted {format_time(run.deleted_us)}  until {format_time(run.expires_us)}  {run.name}"
            )
    return 0


def _delete(arguments: argparse.Namespace) -> int:
    with closing(open_writer(_path(arguments), create=False)) as writer:
        if not delete_run(writer, arguments.run):
            return _fail(f"there is no run {arguments.run[:80]!r}")
        record_action(writer, "run.delete", arguments.run, command_origin())
    _print(f"deleted; for a week, this brings it back: compileboard trash restore {arguments.run}")
    return 0


def _restore(arguments: argparse.Namespace) -> int:
    with closing(open_writer(_path(arguments), create=False)) as writer:
        try:
            restored = restore_run(writer, arguments.run)
        except CannotRestore as error:
            return _fail(str(error))
        if not restored:
            return _fail(f"no run {arguments.run[:80]!r} was deleted here")
        record_action(writer, "run.restore", arguments.run, command_origin())
        index_run(writer, arguments.run)
    _print("restored")
    return 0


def _prune(arguments: argparse.Namespace) -> int:
    if arguments.days < 0:
        return _fail(f"--days is {arguments.days}; expected 0 or more")
    with closing(open_writer(_path(arguments), create=False)) as writer:
        pruned = prune_trash(writer, age_us=arguments.days * DAY_US)
        for run_id in pruned:
            record_action(writer, "run.prune", run_id, command_origin())
    _print(f"deleted for good: {format_plural(len(pruned), 'run')}")
    return 0


def _list_audit(arguments: argparse.Namespace) -> int:
    from compileboard.app.queries.fleet.activity import list_audit

    with closing(open_reader(_path(arguments))) as reader:
        for change in list_audit(reader, limit=arguments.limit, subject=arguments.subject).rows:
            who = change.actor or change.address or "not recorded"
            what = f"{change.action:<16} {change.subject}{f'  {change.detail}' if change.detail else ''}"
            _print(f"{format_time(change.time_us)}  {what}  ({who}, {change.channel})")
    return 0


def _print(text: str) -> None:
    sys.stdout.write(one_line(text) + "\n")


def _fail(message: str) -> int:
    sys.stderr.write(f"compileboard: {message}\n")
    return 1
