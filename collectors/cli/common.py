"""Options and messages shared by the collector's commands."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.push.target import Target, check_server
from compileboard.collectors.store.connection import find_board
from compileboard.collectors.terminal.values import (
    DEFAULT_DATABASE,
    collector_command,
    read_pair,
    read_size,
)
from compileboard.command_line import Value

if TYPE_CHECKING:
    from compileboard.collectors.record.recover_spools import RecoveryReport

Function = TypeVar("Function", bound=Callable[..., Any])
DEFAULT_OUTBOX_BYTES = RunConfig().outbox_bytes

db_option = click.option(
    "--db",
    default=DEFAULT_DATABASE,
    type=click.Path(readable=False),
    callback=lambda _context, _parameter, given: find_board(given),
    metavar="FILE",
    help=f"Database file. Default: {DEFAULT_DATABASE} in this folder.",
)
tag_option = click.option(
    "--tag",
    "tags",
    multiple=True,
    type=Value(read_pair),
    metavar="KEY=VALUE",
    help="Tag to find the run by; repeatable.",
)


_SERVER_OPTIONS = (
    click.option(
        "--server",
        envvar="COMPILEBOARD_SERVER",
        metavar="URL",
        help="Push to this server instead of a database file. Also COMPILEBOARD_SERVER.",
    ),
    click.option(
        "--token-file",
        envvar="COMPILEBOARD_TOKEN_FILE",
        metavar="FILE",
        help=(
            "File with the server's token. Also COMPILEBOARD_TOKEN_FILE; or the token itself "
            "in COMPILEBOARD_TOKEN."
        ),
    ),
    click.option(
        "--insecure",
        envvar="COMPILEBOARD_INSECURE",
        is_flag=True,
        help="Send a token over http:// to another machine.",
    ),
    click.option(
        "--outbox-size",
        envvar="COMPILEBOARD_OUTBOX_SIZE",
        type=Value(read_size),
        default=DEFAULT_OUTBOX_BYTES,
        metavar="SIZE",
        help="Most bytes that wait on this machine for a server. Default: 2GiB.",
    ),
)
SERVER_PARAMETERS = ("server", "token_file", "insecure", "outbox_size")


def server_options(function: Function) -> Function:
    for option in reversed(_SERVER_OPTIONS):
        function = option(function)
    return function


def read_destination(values: dict[str, Any]) -> dict[str, Any]:
    """Remove database and server from a command's values, and return them as settings of a run.

    Raises click.UsageError if both are given, or a server's option alone; TargetError if URL or
    token cannot be used.
    """
    db = str(values.pop("db"))
    context = click.get_current_context()
    given = {name: context.get_parameter_source(name) for name in ("db", "server")}
    if given["db"] == ParameterSource.COMMANDLINE:
        if values["server"] and given["server"] == ParameterSource.COMMANDLINE:
            raise click.UsageError("--server and --db cannot be combined; give one of them")
        values["server"] = None  # the environment applies to commands that name no file
    if values["server"]:
        return read_server(values)
    for name in SERVER_PARAMETERS:
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE and name != "server":
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{option} needs --server; give that, or set COMPILEBOARD_SERVER"
            )
        del values[name]
    return {"database": db}


def read_server(values: dict[str, Any]) -> dict[str, Any]:
    server, token_file, insecure, outbox_bytes = (values.pop(name) for name in SERVER_PARAMETERS)
    if not server:
        raise click.UsageError(
            "--server is missing: the address to push to; or set COMPILEBOARD_SERVER"
        )
    target = Target(
        check_server(server), os.path.abspath(token_file) if token_file else "", insecure
    )
    target.read_token(os.environ)
    return {
        "database": "",
        "server": target.server,
        "token_file": target.token_file,
        "insecure": insecure,
        "outbox_bytes": outbox_bytes,
    }


def print_json(answer: Any) -> None:
    print(json.dumps(answer, indent=2, ensure_ascii=False))


def ignored_flag(reason: str) -> dict[str, Any]:
    """Return the keywords of a hidden flag of torch's scripts that has no effect here."""

    def report(_context: click.Context, option: click.Parameter, given: object) -> None:
        if given:
            print_message(f"{option.opts[0]} {reason}")

    return {"is_flag": True, "hidden": True, "expose_value": False, "callback": report}


def print_message(text: str) -> None:
    if sys.stderr is None:  # closed by the caller; print() would then use stdout
        return
    with suppress(OSError, ValueError):  # a closed stderr must not stop the recording
        print(f"compileboard: {text}", file=sys.stderr, flush=True)


def count_megabytes(label: str, total_bytes: int = 0) -> Callable[[int], None]:
    if sys.stderr is None or not sys.stderr.isatty():
        return lambda _bytes: None
    total = f" of {total_bytes / 1e6:,.0f}" if total_bytes else ""
    shown_s = time.monotonic()

    def show(done_bytes: int) -> None:
        nonlocal shown_s
        if time.monotonic() - shown_s > 0.25:
            shown_s = time.monotonic()
            sys.stderr.write(f"\r{label}: {done_bytes / 1e6:,.0f}{total} MB \x1b[K\r")
            sys.stderr.flush()

    return show


def recover_earlier_runs() -> None:
    from compileboard.collectors.push.outbox import has_waiting
    from compileboard.collectors.record.recover_spools import recover_spools

    print_recovery(recover_spools())
    if has_waiting(os.environ):  # rarely true, and it imports an HTTP client
        from compileboard.collectors.push.outbox_report import resume_sending

        resume_sending(os.environ)


def print_recovery(report: RecoveryReport) -> None:
    if report.run_ids:
        events = "1 event" if report.event_count == 1 else f"{report.event_count} events"
        print_message(f"picked up {events} not recorded so far, of {', '.join(report.run_ids)}")
    for problem in report.problems:
        retry = collector_command("retry", "--db", "FILE")
        print_message(
            f"still waiting to be recorded: {problem} Each command tries again; `{retry}` "
            "records it elsewhere"
        )
    for problem in report.set_aside:
        print_message(
            f"set aside, because it cannot be recorded: {problem}; "
            f"`{collector_command('retry')}` tries again"
        )
