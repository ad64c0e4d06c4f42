"""The `compileboard-collect` command (`python -m collectors`): each subcommand is imported when
called.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import click

from compileboard import __version__
from compileboard.collectors.cli.common import print_message
from compileboard.collectors.store.connection import (
    NEEDED,
    StoreError,
    StoreMissing,
    describe_error,
    explain,
)
from compileboard.collectors.terminal.values import collector_command, dashboard_command
from compileboard.command_line import SETTINGS, CommandEntry, Group, run_group

COMMANDS = {
    "run": CommandEntry("run:run", "Observe a command and everything it starts."),
    "try": CommandEntry(
        "try_command:try_fix",
        "Run a recorded program again with a fix applied to a copy, and compare.",
    ),
    "import": CommandEntry(
        "import_command:import_command",
        "Import trace logs (TORCH_TRACE) and upstream's benchmark results.",
    ),
    "push": CommandEntry(
        "retry:push", "Send runs to a server: what waits here, a database's, or logs."
    ),
    "commits": CommandEntry(
        "commits:commits", "Add the history of a repository, by which commits are ordered."
    ),
    "index": CommandEntry("indexing:index", "Add runs to the search index that are not in it yet."),
    "bench": CommandEntry(
        "bench:bench",
        (
            "Measure models eager and compiled: speedup, accuracy, compile time, memory, breaks, "
            "recompiles."
        ),
    ),
    "ci": CommandEntry(
        "ci:ci", "Measure a pull request's checkout and its base, in GitHub Actions."
    ),
    "retry": CommandEntry(
        "retry:retry",
        "Record runs that could not be recorded, into another database if one is given.",
    ),
    "list": CommandEntry("listing:list_runs", "List the newest runs of a database."),
    "show": CommandEntry("listing:show", "Print one run's summary."),
    "repro": CommandEntry(
        "repro:repro", "Work on a graph that failed: run it again, make it smaller, name the cause."
    ),
    "doctor": CommandEntry(
        "doctor:doctor", "Print what this machine, torch and environment can record, and why."
    ),
}
EXAMPLES = """\
Examples:
  {collect} run -- python train.py --lr 3
  {collect} run --name nightly --suite llm --tag gpu=h200 -- torchrun --nproc-per-node 2 train.py
  {collect} import /tmp/trace            what TORCH_TRACE=/tmp/trace wrote
  {collect} bench                        the built-in suite, eager and compiled
  {collect} list
  {collect} show 01JD
  {collect} try 01JD --fix 1             on a copy: your files stay as they are
  {serve}            then open http://127.0.0.1:8000
"""


def main(argv: Sequence[str] | None = None) -> int:
    return run_group(collect, argv, collector_command())


def explain_error(error: Exception, database: str | None) -> bool:
    if isinstance(error, StoreMissing):
        example = collector_command("run", database=str(database), then="-- python train.py")
        print_message(f"There is no database at {database}. Record a run first: {example}")
    elif isinstance(error, sqlite3.Error):
        print_message(str(explain(error, database or "the database")))
    elif isinstance(error, (StoreError, ValueError, OSError)):
        print_message(str(error))
    elif isinstance(error, ModuleNotFoundError) and error.name in NEEDED:
        print_message(describe_error(error))
    else:
        return False
    return True


@click.group(
    "compileboard-collect",
    cls=Group,
    entries={
        name: CommandEntry(f"{__package__}.{entry.target}", entry.help)
        for name, entry in COMMANDS.items()
    },
    explain=explain_error,
    context_settings=SETTINGS,
    epilog=EXAMPLES.format(collect=collector_command(), serve=dashboard_command("serve")),
)
@click.version_option(__version__, message=f"compileboard {__version__}", help="Show the version.")
def collect() -> None:
    """Record what torch.compile does in a program: compiles, graph breaks, recompiles and why."""
