"""`retry`, and what other commands do first: record what an earlier command could not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from compileboard.collectors.cli.common import print_message
from compileboard.collectors.terminal.command_hints import collector_command
from compileboard.command_line import Command
from compileboard.exit_codes import DONE, FAILED

if TYPE_CHECKING:
    from compileboard.collectors.pipeline.recover_spools import RecoveryReport


@click.command(cls=Command, epilog="Example: %(prog)s 01JD --db another.db\n")
@click.option("--db", metavar="FILE", help="Database to record them into instead of their own.")
@click.argument("runs", nargs=-1, metavar="[RUN ...]", help="Run's ID or its start. Default: all.")
def retry(db: str | None, runs: tuple[str, ...]) -> int:
    """Record runs that were set aside because they could not be recorded, all or those given.

    `list` and `doctor` name them with the reason.
    """
    from compileboard.collectors.pipeline.recover_spools import pick_up_spools
    from compileboard.collectors.spool.folders import put_back

    chosen = put_back(os.environ, list(runs), db)
    if not chosen:
        print_message("no run was set aside")
        return DONE
    report = pick_up_spools()
    print_recovery(report)
    return FAILED if report.set_aside or report.problems else DONE


def pick_up() -> None:
    """Record what an earlier command could not, and print what that was."""
    from compileboard.collectors.pipeline.recover_spools import pick_up_spools

    print_recovery(pick_up_spools())


def print_recovery(report: RecoveryReport) -> None:
    """Print what was recorded, what still waits and what never can be."""
    if report.run_ids:
        events = "1 event" if report.event_count == 1 else f"{report.event_count} events"
        print_message(f"picked up {events} not recorded so far, of {', '.join(report.run_ids)}")
    for problem in report.problems:
        print_message(f"still waiting to be recorded: {problem}")
    for problem in report.set_aside:
        print_message(
            f"set aside, because it cannot be recorded: {problem}; `{collector_command('retry')}` tries again"
        )
