"""`retry` and `push`: record and send runs that an earlier command could not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from compileboard.collectors.cli.common import (
    print_message,
    print_recovery,
    read_server,
    server_options,
)
from compileboard.collectors.cli.limits import limit_options, pop_limits
from compileboard.collectors.contract.run_config import SERVER_SETTINGS, RunConfig
from compileboard.collectors.contract.spool_format import MANIFEST_NAME
from compileboard.collectors.logs.streams import Limits
from compileboard.collectors.store.connection import find_board
from compileboard.command_line import Command
from compileboard.exit_codes import DONE, FAILED

if TYPE_CHECKING:
    from compileboard.collectors.push.outbox import WaitingDelivery


@click.command(cls=Command, epilog="Example: %(prog)s 01JD --db another.db\n")
@click.option(
    "--db",
    callback=lambda _context, _parameter, given: given and find_board(given),
    metavar="FILE",
    help="Database to record them into instead of their own.",
)
@click.argument(
    "runs", nargs=-1, metavar="[RUN ...]", help="Run's ID, its start, or latest. Default: all."
)
def retry(db: str | None, runs: tuple[str, ...]) -> int:
    """Record runs that could not be recorded, all or those given.

    `list` and `doctor` show them with the reason.
    """
    from compileboard.collectors.record.recover_spools import recover_spools
    from compileboard.collectors.record.spool import put_back

    chosen = put_back(os.environ, list(runs), db)
    if not chosen:
        print_message("no run waits to be recorded")
        return DONE
    report = recover_spools()
    print_recovery(report)
    return FAILED if report.set_aside or report.problems else DONE


@click.command(
    cls=Command, epilog="Example: %(prog)s compileboard.db --server https://board.example.com\n"
)
@server_options
@click.option(
    "--all",
    is_flag=True,
    expose_value=False,
    help="Send all that waits on this machine. The default.",
)
@click.option(
    "--run", "run_ids", multiple=True, metavar="ID", help="Only this run, or latest; repeatable."
)
@click.option("--list", "is_list", is_flag=True, help="Print what waits, and send nothing.")
@click.argument(
    "paths",
    nargs=-1,
    type=click.Path(readable=False),
    metavar="[PATH ...]",
    help="Database, spool folder, or folder or file that `import` reads. Default: what waits.",
)
@limit_options
def push(paths: tuple[str, ...], run_ids: tuple[str, ...], is_list: bool, **values: Any) -> int:
    """Send runs to a server: runs waiting on this machine, runs of a database, or logs and results
    as for `import`.

    Only data that the server lacks is sent. Waiting runs use the given --token-file; --server
    selects those waiting for it, and with --run is their new target.
    """
    from compileboard.collectors.push.outbox import list_waiting, outbox_root
    from compileboard.collectors.push.outbox_report import deliver, list_waiting_runs, wake_sender
    from compileboard.collectors.record.recover_spools import recover_spools

    _check_limits(paths, list(values))
    root, limits = outbox_root(os.environ), pop_limits(values)
    if is_list:
        runs = list_waiting_runs(root)
        for run in runs:
            print(run.describe())
        if not runs:
            print_message("nothing waits to be pushed")
        return DONE
    if paths:
        config = RunConfig(**read_server(values))
        queued = [
            run_id for path in paths for run_id in _queue_path(path, root, run_ids, config, limits)
        ]
    else:
        print_recovery(recover_spools())  # Record what killed recorders left.
        queued = [item.run_id for item in _choose_waiting(root, run_ids, values)]
    if not queued:
        wake_sender(os.environ)
        has_recorders = not paths and any(item.is_written() for item in list_waiting(root))
        print_message(
            "nothing waits but what is being recorded"
            if has_recorders
            else "nothing waits to be pushed"
        )
        return DONE
    return DONE if deliver(os.environ, queued, print_message) else FAILED


def _check_limits(paths: tuple[str, ...], names: list[str]) -> None:
    """Raises click.UsageError for limits with a run or database, which are always sent whole."""
    from compileboard.collectors.store.bundles import is_bundle

    context = click.get_current_context()
    given = [
        f"--{name.replace('_', '-')}"
        for name in names
        if name.startswith("limit_")
        and context.get_parameter_source(name) == ParameterSource.COMMANDLINE
    ]
    unread = [path for path in paths if _is_spool(path) or is_bundle(path)]
    if given and (unread or not paths):
        what = f"{unread[0]} is a database or spool" if unread else "no PATH is given"
        raise click.UsageError(
            f"{', '.join(given)}: the limits are on logs and archives that push reads; {what}"
        )


def _is_spool(path: str) -> bool:
    return (Path(path) / MANIFEST_NAME).is_file()


def _choose_waiting(
    root: Path, run_ids: tuple[str, ...], values: dict[str, Any]
) -> list[WaitingDelivery]:
    from compileboard.collectors.push.outbox import list_waiting
    from compileboard.collectors.push.target import check_server
    from compileboard.collectors.terminal.run_summary import NEWEST

    context = click.get_current_context()
    given = {
        name: context.get_parameter_source(name) == ParameterSource.COMMANDLINE for name in values
    }
    server = check_server(values["server"]) if given["server"] else ""
    waiting = list(list_waiting(root))
    newest = max((item.run_id for item in waiting), default=NEWEST)
    begins = tuple(newest if run_id == NEWEST else run_id for run_id in run_ids)
    waiting = [item for item in waiting if not begins or item.run_id.startswith(begins)]
    if run_ids and not waiting:
        raise ValueError(f"no run {' or '.join(run_ids)} waits; `push --list` prints what does")
    if server and not run_ids:
        waiting = [item for item in waiting if item.target.server == server]
    chosen = []
    for item in waiting:
        if item.is_written():
            continue  # it is pushed in the meantime
        target = replace(item.target, server=server or item.target.server)
        if given["token_file"]:
            target = replace(target, token_file=os.path.abspath(values["token_file"]))
        if given["insecure"]:
            target = replace(target, insecure=True)
        if target != item.target:
            target.read_token(os.environ)
            item.set_target(target)
        chosen.append(replace(item, target=target))
    return chosen


def _queue_path(
    path: str, root: Path, run_ids: tuple[str, ...], config: RunConfig, limits: Limits
) -> Iterator[str]:
    from compileboard.collectors.cli.import_command import (
        import_into_outbox,
    )  # imported here because it is large
    from compileboard.collectors.push.run_bundles import bundle_runs
    from compileboard.collectors.record.recover_spools import recover_spool
    from compileboard.collectors.record.spool import read_manifest
    from compileboard.collectors.repro.sending import queue_stored_answers
    from compileboard.collectors.store.bundles import is_bundle
    from compileboard.collectors.store.connection import open_reader
    from compileboard.collectors.terminal.run_summary import NEWEST, find_run

    folder = Path(path)
    if _is_spool(path):
        server = {name: getattr(config, name) for name in SERVER_SETTINGS}
        manifest = replace(read_manifest(folder), database="", **server)
        manifest.write(folder)
        if not recover_spool(folder):
            raise ValueError(
                f"{path} is being recorded by another process; it is pushed when that is done"
            )
        yield manifest.run_id
    elif is_bundle(path):
        queue_more = partial(queue_stored_answers, root=root, config=config)
        with closing(open_reader(path)) as reader:
            named = [
                find_run(reader, NEWEST) or NEWEST if run_id == NEWEST else run_id
                for run_id in run_ids
            ]
        yield from bundle_runs(path, root, config, print_message, named, queue_more)
    else:
        yield from import_into_outbox([path], root, config, limits=limits)[1]
