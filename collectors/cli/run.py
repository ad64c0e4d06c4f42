"""`run`: observe a command and every process it starts, and exit with its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from compileboard.collectors.cli.common import (
    db_option,
    print_message,
    read_destination,
    recover_earlier_runs,
    server_options,
    tag_option,
)
from compileboard.collectors.contract.repros import DEFAULT_VALUES_BYTES
from compileboard.collectors.contract.run_config import describe_uncompiled, parse_steps
from compileboard.collectors.observe.torch_compat import describe_too_old
from compileboard.collectors.store.connection import StoreError, describe_error, open_reader
from compileboard.collectors.terminal.progress_line import (
    ProgressLine,
    counts_text,
    progress_line,
)
from compileboard.collectors.terminal.values import collector_command, count_text, read_size
from compileboard.command_line import Choice, Command, Value
from compileboard.exit_codes import REFUSED

if TYPE_CHECKING:
    from compileboard.collectors.record.live import Launch
    from compileboard.collectors.record.program import ProgramExit
    from compileboard.collectors.terminal.progress_line import DestinationLine


def _read_steps(text: str) -> str:
    if text:
        parse_steps(text)
    return text


@click.command(
    cls=Command,
    context_settings={
        "allow_interspersed_args": False
    },  # the command's own options must not be parsed
    epilog="Example: %(prog)s --tag branch=main -- python train.py --lr 3\n",
)
@db_option
@server_options
@click.option("--name", metavar="NAME", help="Name of the run. Default: the script's.")
@click.option(
    "--suite",
    metavar="NAME",
    help="Suite that the run belongs to; overview charts are per suite and name.",
)
@tag_option
@click.option(
    "--level",
    type=Choice(("light", "full")),
    default="light",
    help="Level of detail. light: compiles, breaks, recompiles, caches, failures, at no "
    "measurable cost; "
    "full: torch's trace log too, which slows compiles by about a tenth. Default: light.",
)
@click.option("--no-source", is_flag=True, help="Store no line of the program's source code.")
@click.option(
    "--capture-env",
    multiple=True,
    metavar="NAME",
    help="Environment variable to store too; repeatable. TORCH* always are, secrets never.",
)
@click.option(
    "--repro",
    multiple=True,
    type=Choice(("crash", "accuracy")),
    help="Capture more than graphs that raise; repeatable. crash: the graph that runs when a "
    "process dies; accuracy: "
    "each graph whose first call differs from eager and float64, which takes two more calls.",
)
@click.option(
    "--repro-inputs",
    type=Value(read_size),
    is_flag=False,
    flag_value=str(DEFAULT_VALUES_BYTES),
    metavar="[SIZE]",
    help="Store the values of a captured graph's inputs too, up to SIZE a graph (default 64MiB).",
)
@click.option(
    "--steps",
    type=Value(_read_steps),
    default="",
    metavar="N[@M]",
    help="Time N calls of the outermost compiled function, and trace three more: what each graph, "
    "break and guard costs a step. After M calls, or once nothing compiles any more.",
)
@click.option(
    "--stack-room",
    is_flag=True,
    help=(
        "Start Python programs with room on CPython's frame stack, whose chunks can slow "
        "compiled models."
    ),
)
@click.option(
    "--diff-branch",
    metavar="REF",
    help="Observe the command in this branch or commit too, first, in a throw-away worktree; "
    "the checkout is not "
    "touched.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Afterwards, try every fix on a copy, as `try --all` does.",
)
@click.option("--quiet", is_flag=True, help="Print errors only.")
@click.argument(
    "command",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="-- COMMAND [ARGUMENT ...]",
    help="Command to run.",
)
def run(
    command: tuple[str, ...],
    level: str,
    no_source: bool,
    quiet: bool,
    repro: tuple[str, ...],
    repro_inputs: int | None,
    diff_branch: str | None,
    verify: bool,
    tags: tuple[tuple[str, str], ...],
    **options: Any,
) -> int:
    """Observe a command and every process it starts: subprocesses, torchrun ranks, forked workers.

    The program's output, exit code and exceptions do not change.
    """
    from compileboard.collectors.record.program import (
        CannotRun,
        check_program,
        end_like,
        hold_closed_streams,
    )

    with reporting_errors("closed standard streams may not stay closed"):
        hold_closed_streams()
    if not command:
        print_message(
            "no command to run; write it after `--`: "
            f"{collector_command('run', then='-- python train.py')}"
        )
        return REFUSED
    if no_source and level == "full":
        print_message(
            "--level full keeps torch's trace, which is full of source code; it cannot go with "
            "--no-source"
        )
        return REFUSED
    if no_source and repro_inputs:
        print_message("--repro-inputs keeps the values of tensors; it cannot go with --no-source")
        return REFUSED
    destination = read_destination(options)
    if verify and not destination["database"]:
        print_message(
            "--verify runs the program again from its database; it cannot go with --server"
        )
        return REFUSED
    options |= {"level": level, "keep_source": not no_source}
    options |= {"repro": tuple(dict.fromkeys(repro)), "repro_inputs_bytes": repro_inputs or 0}
    try:
        check_program(list(command), os.environ)
        with reporting_errors("what earlier commands left cannot be recorded"):
            recover_earlier_runs()
        if diff_branch is not None:
            # Imported here because only this option needs `bench` and its imports.
            from compileboard.collectors.bench.execution.diff_branch import REF_TAG, TAG, enter_base

            if destination["database"]:
                destination["database"] = os.path.abspath(destination["database"])
            with enter_base(diff_branch, list(command)) as (moved, environment):
                base_tags = (*tags, (TAG, "base"), (REF_TAG, diff_branch))
                outcome = observe(
                    moved, environment, quiet, tags=base_tags, **destination, **options
                )
            if outcome.is_interrupted:
                return end_like(outcome)
            tags = (*tags, (TAG, "new"))
        return end_like(
            observe(list(command), os.environ, quiet, verify, tags=tags, **destination, **options)
        )
    except CannotRun as error:
        print_message(str(error))
        return error.exit_code


def observe(
    command: list[str],
    environment: Mapping[str, str],
    quiet: bool,
    verify: bool = False,
    **options: Any,
) -> ProgramExit:
    from compileboard.collectors.record.live import DatabaseUnusable
    from compileboard.collectors.record.program import CannotRun, ProgramExit, run_program

    launch: Launch | None = None
    destination: DestinationLine | None = None
    refused: CannotRun | None = None
    unusable: DatabaseUnusable | None = None
    with reporting_errors("this run is not recorded"):
        try:
            launch, destination = open_launch(command, environment, quiet, **options)
        except DatabaseUnusable as error:
            unusable = error
    if unusable is not None:
        raise unusable
    with ExitStack() as screen:
        progress = None
        if launch is not None and not quiet:
            with reporting_errors("no progress is shown"):
                progress = progress_line(os.environ)
                if progress:
                    progress.__enter__()
                    screen.callback(_end_progress, progress)
        show = progress.show if progress else None

        def beat() -> None:
            if launch is not None:
                launch.recording.step(show)
            if destination is not None:
                destination.step()

        try:
            outcome = run_program(command, launch.environment if launch else environment, beat)
        except CannotRun as error:
            refused, outcome = error, ProgramExit(error.exit_code)
        if launch:
            with reporting_errors("the end of this run is not recorded"):
                launch.end(outcome)
    if refused is not None:
        raise refused
    if launch and launch.recording.trouble is None and not quiet:
        with reporting_errors("the records cannot be counted"):
            for line in _list_closing_lines(launch, options["database"]):
                print_message(line)
    if verify and launch and launch.recording.trouble is None and not outcome.is_interrupted:
        from compileboard.collectors.cli.try_command import try_all

        with reporting_errors("the fixes are not tried"):
            try_all(launch.manifest.run_id, os.path.abspath(options["database"]), file=sys.stderr)
    return outcome


def _list_closing_lines(launch: Launch, database: str) -> list[str]:
    manifest = launch.manifest
    if manifest.server:
        from compileboard.collectors.push.outbox import outbox_root
        from compileboard.collectors.push.outbox_report import describe_delivery
        from compileboard.collectors.push.target import Target
        from compileboard.collectors.record.outbox_sink import OutboxSink

        recorder = launch.recording.recorder
        counts = f"recorded {counts_text(*recorder.sink.count_compiles())}; " if recorder else ""
        lost_count = (
            recorder.sink.lost_count if recorder and isinstance(recorder.sink, OutboxSink) else 0
        )
        lost = (
            f"{count_text(lost_count, 'event')} lost, as the outbox was full; "
            if lost_count
            else ""
        )
        return [
            counts
            + lost
            + describe_delivery(outbox_root(os.environ), manifest.run_id, Target.of(manifest))
        ]
    lines = list_summary_lines(database, manifest.run_id)
    if "accuracy" in manifest.repro:
        from compileboard.collectors.terminal.progress_line import describe_graph_checks

        lines.append(describe_graph_checks(database, manifest.run_id))
    return lines


def _end_progress(progress: ProgressLine) -> None:
    with suppress(Exception):
        progress.__exit__(None, None, None)


def open_launch(
    command: list[str], environment: Mapping[str, str], quiet: bool, **options: Any
) -> tuple[Launch, DestinationLine | None]:
    from compileboard.collectors.contract.run_config import RunConfig
    from compileboard.collectors.record.facts import unreachable
    from compileboard.collectors.record.live import Launch
    from compileboard.collectors.terminal.progress_line import DestinationLine

    options |= {"name": options["name"] or "", "tags": dict(options["tags"])}
    config = RunConfig(**options)
    launch = Launch(command, config, environment, print_message)
    destination = None
    if not quiet:
        if launch.recording.recorder is not None:
            destination = DestinationLine(config, launch.manifest.run_id, print_message)
            destination.step()
        with reporting_errors("limits of the hooks are not known"):
            for warning in unreachable(command):
                print_message(warning)
    return launch, destination


@contextmanager
def reporting_errors(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        print_message(f"{what}: {describe_error(error)}")


def list_summary_lines(database: str, run_id: str) -> list[str]:
    from compileboard.collectors.store.repros import list_runnable
    from compileboard.collectors.terminal.run_summary import summarize

    try:
        summary = summarize(database, run_id)
    except StoreError as error:
        return [str(error)]
    if summary is None:
        return [f"run {run_id} is not in {database}"]
    show = collector_command("show", run_id, database=database)
    if summary.compile_count or summary.failure_count:
        counts = counts_text(
            summary.compile_count, summary.graph_break_count, summary.recompile_count
        )
        if summary.failure_count:
            counts += f", {count_text(summary.failure_count, 'failure')}"
        cliff = (
            "; it may lose time to Python's frame stack, which `run --stack-room` avoids"
            if summary.cliffs
            else ""
        )
        lines = [
            f"wrong result of {item.text}: {item.note.splitlines()[0]}" for item in summary.wrong
        ]
        lines += [summary.savings, f"recorded {counts}{cliff}; {show}"]
        if summary.can_try:
            words = ("try", run_id, "--all")
            lines.append(
                "try the fixes on a copy of the source: "
                f"{collector_command(*words, database=database)}"
            )
        with closing(open_reader(database)) as connection:
            repros = list(list_runnable(connection, summary.repros))
        if len(repros) == 1:
            command = collector_command("repro", "run", repros[0].id, database=database)
            lines.append(f"the graph that failed can be run again: {command}")
        elif repros:
            command = collector_command("repro", "list", "--run", run_id, database=database)
            lines.append(f"{len(repros)} graphs that failed can be run again: {command}")
        return [line for line in lines if line]
    doctor = collector_command("doctor", database=database)
    if summary.torch_version and (too_old := describe_too_old(summary.torch_version)):
        return [f"nothing was recorded: {too_old}"]
    reason = describe_uncompiled(summary.state, summary.torch_version, summary.disabling)
    if summary.disabling:
        return [f"{reason}; {show}"]
    hint = f" (check: `{doctor}`)" if summary.torch_version or summary.state == "finished" else ""
    return [f"{reason}{hint}; {show}"]
