"""The collector's command line: run, bench, import, commits, index, list, show, doctor."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sqlite3
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from compileboard.collectors.cli.options import build_parser
from compileboard.collectors.store.errors import NEEDED, StoreError, StoreMissing, describe_error, explain
from compileboard.collectors.terminal.command_hints import collector_command, dashboard_command
from compileboard.collectors.terminal.progress_line import count_text, counts_text, progress_line

if TYPE_CHECKING:
    from compileboard.collectors.pipeline.live import Launch
    from compileboard.collectors.pipeline.recover_spools import RecoveryReport

USAGE_ERROR = 2


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return USAGE_ERROR
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "run": run_command,
        "bench": bench_command,
        "import": import_command,
        "commits": commits_command,
        "index": index_command,
        "retry": retry_command,
        "list": list_command,
        "show": show_command,
        "doctor": doctor_command,
    }
    try:
        return commands[arguments.command](arguments)
    except StoreMissing:
        example = collector_command("run", database=arguments.db, then="-- python train.py")
        print_message(f"There is no database at {arguments.db}. Record a run first: {example}")
        return USAGE_ERROR
    except sqlite3.Error as error:
        print_message(str(explain(error, getattr(arguments, "db", "the database"))))
        return USAGE_ERROR
    except (StoreError, ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE
        print_message(str(error))
        return USAGE_ERROR
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        print_message(describe_error(error))
        return USAGE_ERROR
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def print_message(text: str) -> None:
    """Print one line of our own, apart from the program's output."""
    if sys.stderr is None:  # closed by the caller; print() would then take stdout
        return
    with suppress(OSError, ValueError):  # nobody reads it any more: no reason to leave the program alone
        print(f"compileboard: {text}", file=sys.stderr, flush=True)


@contextmanager
def unhindered(what: str) -> Iterator[None]:
    """Say what went wrong before or beside the program, in one line; the program runs all the same."""
    try:
        yield
    except Exception as error:
        print_message(f"{what}: {describe_error(error)}")


def run_command(arguments: argparse.Namespace) -> int:
    """Observe a command; end as it ended, whatever becomes of our own part."""
    from compileboard.collectors.runs.program import CannotRun, ProgramExit, check_program, end_like, run_program

    command = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    if not command:
        print_message(f"no command to run; write it after `--`: {collector_command('run', then='-- python train.py')}")
        return USAGE_ERROR
    if arguments.no_source and arguments.level == "full":
        print_message("--level full keeps torch's trace, which is full of source code; it cannot go with --no-source")
        return USAGE_ERROR
    try:
        check_program(command, os.environ)
    except CannotRun as error:
        print_message(str(error))
        return error.exit_code
    with unhindered("what earlier commands left cannot be recorded"):
        pick_up()
    launch = None
    with unhindered("this run is not recorded"):
        launch = open_launch(arguments, command)
    with ExitStack() as screen:
        progress = None
        if launch is not None and not arguments.quiet:
            with unhindered("no progress is shown"):
                progress = progress_line(os.environ)
                screen.enter_context(suppress(Exception))
                if progress:
                    screen.enter_context(progress)
        show = progress.show if progress else None
        try:
            outcome = run_program(
                command,
                launch.environment if launch else os.environ,
                (lambda: launch.step(show)) if launch else (lambda: None),
            )
        except CannotRun as error:
            if launch:
                launch.end(ProgramExit(error.exit_code))
            print_message(str(error))
            return error.exit_code
        if launch:
            launch.end(outcome)
    if launch and launch.recording.trouble is None and not arguments.quiet:
        with unhindered("what was recorded cannot be said"):
            print_message(closing_line(arguments.db, launch.manifest.run_id))
    return end_like(outcome)


def open_launch(arguments: argparse.Namespace, command: list[str]) -> Launch:
    """Begin the run of a command, and say where it is recorded."""
    from compileboard.collectors.contract.run_config import RunConfig
    from compileboard.collectors.pipeline.live import Launch
    from compileboard.collectors.runs.command_line import unreachable

    config = RunConfig(
        database=arguments.db,
        name=arguments.name or "",
        suite=arguments.suite,
        tags=dict(arguments.tag),
        level=arguments.level,
        keep_source=not arguments.no_source,
        capture_env=tuple(arguments.capture_env),
        stack_room=arguments.stack_room,
    )
    launch = Launch(command, config, os.environ, print_message)
    if not arguments.quiet:
        served = dashboard_command("serve", database=arguments.db)
        if launch.recording.recorder is not None:
            print_message(f"run {launch.manifest.run_id} is recorded in {arguments.db}; see it with: {served}")
        with unhindered("what the hooks may not reach cannot be said"):
            for warning in unreachable(command):
                print_message(warning)
    return launch


def import_command(arguments: argparse.Namespace) -> int:
    """Read torch's trace logs."""
    from compileboard.collectors.cli.import_command import import_paths, read_names
    from compileboard.collectors.pipeline.import_progress import ProgressLines
    from compileboard.collectors.pipeline.log_loader import LoadOptions
    from compileboard.collectors.sources.streams import Limits

    lines = ProgressLines(sys.stdout) if arguments.progress_lines else None
    if lines is None:
        pick_up()
    options = LoadOptions(
        payloads=not arguments.no_payloads,
        redact_source=arguments.redact_source,
        name=arguments.name,
        suite=arguments.suite,
        tags=dict(arguments.tag),
        roots=tuple(arguments.root),
        again=arguments.again,
    )
    try:
        return import_paths(
            arguments.paths,
            arguments.db,
            options,
            say=print_message,
            latest=arguments.latest,
            follow=arguments.follow,
            strict=arguments.strict,
            index=not arguments.no_index,
            limits=Limits(
                arguments.limit_bytes,
                arguments.limit_ratio,
                arguments.limit_entries,
                arguments.limit_records,
                arguments.limit_rows,
            ),
            names=read_names(arguments.names),
            lines=lines,
        )
    except (StoreError, ValueError, OSError) as error:
        if lines is not None and not isinstance(error, BrokenPipeError):
            lines.fail(error)
        raise


def bench_command(arguments: argparse.Namespace) -> int:
    """Measure models eager and compiled."""
    from compileboard.collectors.cli import bench

    if not arguments.list:
        pick_up()
    return bench.bench_command(arguments, print_message)


def commits_command(arguments: argparse.Namespace) -> int:
    """Add a clone's history."""
    from compileboard.collectors.cli.commits import add_commits

    return add_commits(arguments.db, arguments.repository, arguments.branch, say=print_message)


def index_command(arguments: argparse.Namespace) -> int:
    """Index what is not in the search index yet."""
    from compileboard.collectors.cli.indexing import index_runs

    return index_runs(arguments.db, arguments.runs, say=print_message)


def closing_line(database: str, run_id: str) -> str:
    """Say what was recorded, or why there may be nothing."""
    from compileboard.collectors.terminal.run_summary import summarize

    try:
        summary = summarize(database, run_id)
    except StoreError as error:
        return str(error)
    if summary is None:
        return f"run {run_id} is not in {database}"
    show = collector_command("show", run_id, database=database)
    if summary.compile_count:
        counts = counts_text(summary.compile_count, summary.graph_break_count, summary.recompile_count)
        if summary.failure_count:
            counts += f", {count_text(summary.failure_count, 'failure')}"
        cliff = "; it may lose time to Python's frame stack, which `run --stack-room` settles" if summary.cliffs else ""
        return f"recorded {counts}{cliff}; {show}"
    doctor = collector_command("doctor", database=database)
    if summary.torch_version:
        return (
            "nothing was compiled although torch was loaded: no compiled function was called, or TORCH_COMPILE_DISABLE "
            f"or TORCHDYNAMO_DISABLE is set (`{doctor}` says); {show}"
        )
    if summary.state != "finished":  # it had no chance to
        return f"the program ended before it loaded torch.compile; {show}"
    return (
        "nothing was compiled: no process that could be observed loaded torch.compile. Either the program does not use "
        "it, or it ran where the hooks do not reach: python -I, -S or -E, a container, another machine "
        f"(`{doctor}` says more)"
    )


def pick_up() -> None:
    """Record what an earlier command could not, and say so."""
    from compileboard.collectors.pipeline.recover_spools import pick_up_spools

    print_recovery(pick_up_spools())


def print_recovery(found: RecoveryReport) -> None:
    """Say what was recorded, what still waits and what never can be."""
    if found.run_ids:
        events = "1 event" if found.event_count == 1 else f"{found.event_count} events"
        print_message(f"picked up {events} not recorded so far, of {', '.join(found.run_ids)}")
    for problem in found.problems:
        print_message(f"still waiting to be recorded: {problem}")
    for problem in found.set_aside:
        print_message(
            f"set aside, because it cannot be recorded: {problem}; `{collector_command('retry')}` tries again"
        )


def retry_command(arguments: argparse.Namespace) -> int:
    """Record what was set aside."""
    from compileboard.collectors.pipeline.recover_spools import pick_up_spools
    from compileboard.collectors.spool.folders import put_back

    chosen = put_back(os.environ, arguments.runs, arguments.db)
    if not chosen:
        print_message("no run was set aside")
        return 0
    found = pick_up_spools()
    print_recovery(found)
    return 1 if found.set_aside or found.problems else 0


def list_command(arguments: argparse.Namespace) -> int:
    """Print the newest runs."""
    from compileboard.collectors.cli.listing import list_text
    from compileboard.collectors.spool.folders import list_set_aside

    pick_up()
    for one in list_set_aside(os.environ):
        print_message(f"set aside: {one.name}: {one.reason}; `{collector_command('retry', one.name)}` tries again")
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(list_text(arguments.db, arguments.limit, suite=arguments.suite, tags=arguments.tag, columns=columns))
    return 0


def show_command(arguments: argparse.Namespace) -> int:
    """Print one run's summary."""
    from compileboard.collectors.terminal.run_summary import summarize

    pick_up()
    summary = summarize(arguments.db, arguments.run)
    if summary is None:
        names = collector_command("list", database=arguments.db)
        print_message(f"there is no run {arguments.run!r} in {arguments.db}; `{names}` names them")
        return 1
    print(summary.text())
    return 0


def doctor_command(arguments: argparse.Namespace) -> int:
    """Print what can be recorded here, and why not what cannot."""
    from compileboard.collectors.cli.doctor import examine

    checks = examine(arguments.db)
    width = max(len(check.subject) for check in checks)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for check in checks:
        head = f"{check.mark:<5} {check.subject:<{width}}  "
        room = max(30, columns - len(head)) if columns else len(check.finding) + 1
        print(head + f"\n{'':<{len(head)}}".join(textwrap.wrap(check.finding, room, break_on_hyphens=False)))
    return 0 if all(check.mark != "fails" for check in checks) else 1
