"""`repro`: run, check, minify or send a graph that failed or was wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compileboard.collectors.cli.common import (
    db_option,
    ignored_flag,
    print_json,
    print_message,
    read_destination,
    read_server,
    recover_earlier_runs,
    server_options,
)
from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.repro.isolation import run_task
from compileboard.collectors.repro.preloads import (
    absolute_name,
    recall_preload,
    remember_preload,
)
from compileboard.collectors.repro.repro import NotRunnable, Repro
from compileboard.collectors.repro.trials import DEFAULT_SECONDS, TrialLimits
from compileboard.collectors.terminal.progress_line import progress_line
from compileboard.collectors.terminal.values import (
    collector_command,
    format_table,
    read_count,
    read_seconds,
    read_size,
)
from compileboard.command_line import Choice, Command, CommandEntry, Group, Option, Value
from compileboard.exit_codes import DONE, FAILED, REFUSED

if TYPE_CHECKING:
    from compileboard.collectors.store.repros import ReproLine

EXAMPLES = """\
Examples:
  %(prog)s list
  %(prog)s run 3f2a                      does it still fail here, in the same way?
  %(prog)s check repro.py                how far its answer is from eager's
  %(prog)s export 3f2a -o failure.py     one file that needs torch alone
"""
ENTRIES: dict[str, CommandEntry] = {  # commands with modules of their own
    "analyze": CommandEntry(
        f"{__package__}.repro_search:analyze_command",
        "Name the operation of a graph that is wrong.",
    ),
    "bisect": CommandEntry(
        f"{__package__}.repro_search:bisect_command", "Find the step or setting that makes it fail."
    ),
    "minify": CommandEntry(
        f"{__package__}.repro_search:minify_command", "Make a failing graph as small as it gets."
    ),
}
TRIALS = "Limits of each trial"
_OWN_PROCESS = "each trial is a process of its own, which ends with all that it held"
NOT_NEEDED = {  # flags of torch's scripts without an effect here
    "--isolate": _OWN_PROCESS,
    "--no-isolate": f"{_OWN_PROCESS}; a search in one process would end with the first crash",
    "--offload-to-disk": _OWN_PROCESS,
    "--skip-sanity": "the whole graph is tried once, and its answer is remembered",
    "--max-granularity": (
        "the operation that is suspected is tried first; --max-time bounds the search"
    ),
    "--skip-saving-eager-intermediates": "values between operations are not saved",
    "--skip-saving-inductor-intermediates": "values between operations are not saved",
    "--skip-saving-float64-intermediates": "values between operations are not saved",
    "--skip-check-deterministic": "each operation is judged on the same inputs as eager's",
    "--stable-hash": "values are compared themselves, not their hashes",
    "--no-accuracy": "`repro run` asks what was recorded, `repro check` for the answer",
}


def torch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of torch's own scripts that have no effect here."""
    for flag, reason in NOT_NEEDED.items():
        words = ignored_flag(f"is not needed: {reason}")
        words["is_flag"] = flag != "--max-granularity"
        function = click.option(flag, **words)(function)
    return function


name_argument = click.argument(
    "name",
    metavar="REPRO",
    help="Repro's ID, or its start; an archive, a script, or a folder that torch left.",
)
preload_option = click.option(
    "--preload",
    multiple=True,
    metavar="MODULE",
    help="Module or file that registers operations, lowerings or backends; MODULE:FUNCTION calls a "
    "function too; repeatable. Later commands remember it.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")


def trial_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = torch_options(function)
    for option in reversed(
        (
            preload_option,
            click.option(
                "--trust",
                is_flag=True,
                help="Run code that is not your own: an archive, an imported run.",
            ),
            click.option(
                "--device",
                metavar="DEVICE",
                help="Device to run on instead of the recorded one: cpu.",
            ),
            click.option(
                "--timeout",
                type=Value(read_seconds),
                default=DEFAULT_SECONDS,
                metavar="S",
                help=f"Most seconds. Default: {DEFAULT_SECONDS:g}.",
                cls=Option,
                group=TRIALS,
            ),
            click.option(
                "--memory",
                type=Value(read_size),
                metavar="SIZE",
                help="Most memory beside torch's own, of the GPU where it runs on one: 8G.",
                cls=Option,
                group=TRIALS,
            ),
        )
    ):
        function = option(function)
    return function


level_option = click.option(
    "--level",
    type=Choice(("dynamo", "aot")),
    help="Graph to run, where both are recorded: dynamo or aot.",
)


def origin_options(function: Callable[..., Any]) -> Callable[..., Any]:
    return db_option(server_options(function))


def load_trusted(name: str, options: dict[str, Any], *, trust: bool) -> Repro:
    repro = load_any(name, options)
    repro.check_trust(is_trusted=trust)
    return repro


def load_any(name: str, options: dict[str, Any]) -> Repro:
    from compileboard.collectors.repro.loading import is_path, load_repro

    destination = read_destination(options)
    if destination.get("server") and not is_path(name):
        from compileboard.collectors.repro.sending import load_served

        return load_served(name, RunConfig(**destination), os.environ)
    return load_repro(name, os.path.abspath(destination["database"]), os.environ)


def run_repro_task(
    repro: Repro,
    target: str,
    options: dict[str, Any],
    *,
    preload: tuple[str, ...],
    timeout: float,
    memory: int | None,
    device: str | None,
) -> dict[str, Any]:
    line, names = progress_line(os.environ), list(map(absolute_name, preload))
    if not preload:
        names, folders = recall_preload(repro, os.environ)
        repro = replace(repro, folders=(*folders, *repro.folders))
        if names:
            print_message(f"preloading {', '.join(names)}, as an earlier command did")

    def show(message: dict[str, Any]) -> None:
        if note := message.get("note"):
            print_message(note)
        elif line is not None and (text := message.get("text") or message.get("stage")):
            line.show_text(f"repro: {text}")

    with line if line is not None else open(os.devnull):
        answer = run_task(
            target,
            repro,
            options,
            limits=TrialLimits(timeout, memory),
            preload=names,
            device=device,
            environment=os.environ,
            on_progress=show,
        )
    if preload and repro.program:
        remember_preload(repro, names, os.environ)
    return answer


def save_command_result(
    repro: Repro, command: str, started_us: int, answer: dict[str, Any], **columns: Any
) -> None:
    from compileboard.collectors.repro.repro import save_answer
    from compileboard.collectors.store.connection import StoreError
    from compileboard.collectors.store.repros import ReproResult

    ended_us = read_clock_us()
    result = ReproResult(
        command,
        str(answer["status"]),
        (ended_us - started_us) / 1e6,
        started_us,
        ended_us,
        torch_version=answer.get("torch_version"),
        detail=answer,
        **{"device": repro.manifest.device, "operation": answer.get("operation"), **columns},
    )
    try:
        if repro.server is not None:
            from compileboard.collectors.repro.sending import send_answer

            print_message(f"the answer is {send_answer(repro, result, os.environ)}")
        else:
            save_answer(repro, result)
    except (StoreError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        print_message(f"the answer was not kept: {why or error}")


@click.group("repro", cls=Group, entries=ENTRIES, epilog=EXAMPLES)
def repro() -> None:
    """Work on a graph that failed or was wrong, in processes of its own.

    REPRO is an ID of the dashboard, a file, an archive, or a folder that torch left. A repro from
    another machine runs only with --trust. Exit codes: 0 reproduced or answered, 1 not reproduced,
    2 could not be run.
    """


@repro.command("list", cls=Command)
@db_option
@click.option(
    "--run", "run_id", metavar="RUN", help="Only those of this run: its ID, its start, or latest."
)
@click.option(
    "--limit", type=Value(read_count), default=20, metavar="N", help="Most to list. Default: 20."
)
@json_option
def list_command(db: str, run_id: str | None, limit: int, as_json: bool) -> int:
    """List the newest repros of a database."""
    from compileboard.collectors.store.connection import open_reader
    from compileboard.collectors.store.repros import list_repros
    from compileboard.collectors.terminal.run_summary import need_run

    recover_earlier_runs()
    with closing(open_reader(db)) as connection:
        run = None if run_id is None else need_run(connection, run_id, db)
        lines = list_repros(connection, run, limit=limit)
    if as_json:
        print_json([vars(line) for line in lines])
    elif not lines:
        print(
            f"{db} has no repros. A run whose compile fails records one: "
            f"{collector_command('run', then='-- …')}"
        )
    else:
        head = ["repro", "recorded", "kind", "phase", "nodes", "run", "function"]
        head.append("operation or error")
        print("\n".join(format_table([head, *map(_format_cells, lines)])))
    return DONE


def _format_cells(line: ReproLine) -> list[str]:
    from datetime import datetime

    from compileboard.collectors.terminal.run_summary import printable

    message = (line.message or "").strip().splitlines()
    error = ": ".join(part for part in (line.error_type, message[0] if message else None) if part)
    return [
        line.id,
        f"{datetime.fromtimestamp(line.time_us / 1e6):%Y-%m-%d %H:%M}",
        line.kind,
        line.phase,
        str(line.node_count) if line.node_count is not None else "–",
        printable(line.run_name)[:30],
        printable(line.function or "–")[:30],
        printable(line.operation or error or "–")[:70],
    ]


@repro.command("show", cls=Command)
@name_argument
@origin_options
@click.option("--program", "with_program", is_flag=True, help="Print the graph's program.")
@json_option
def show_command(name: str, with_program: bool, as_json: bool, **options: Any) -> int:
    """Print a repro: its failure, its graph, its inputs and earlier results."""
    from compileboard.collectors.contract.repros import dump_manifest
    from compileboard.collectors.repro.describing import describe_repro, list_answers

    loaded = load_any(name, options)
    if as_json:
        body = {
            "name": loaded.name,
            "manifest": dump_manifest(loaded.manifest),
            "distrust": loaded.distrust,
        }
        body |= {"program": loaded.program, "dynamo_program": loaded.dynamo_program}
        print_json({**body, "results": list_answers(loaded)})
    elif with_program:
        print(loaded.program)
    else:
        print(describe_repro(loaded))
    return DONE


@repro.command("run", cls=Command)
@name_argument
@origin_options
@level_option
@trial_options
@json_option
def run_command(name: str, level: str | None, trust: bool, as_json: bool, **options: Any) -> int:
    """Run a repro again: does it still fail here, in the same way?

    A folder's repros run one after the other. Dynamo's record of a frame, FUNCTION_ERROR_LINE.rec,
    is traced again. Exit code 0: it fails as it was recorded. 1: it passes, or fails in another
    way. 2: it could not be run.
    """
    from compileboard.collectors.repro.loading import list_repros

    paths = list_repros(Path(name)) if os.path.isdir(name) else []
    if len(paths) < 2:
        return _run_one(
            str(paths[0]) if paths else name, level, options, trust=trust, as_json=as_json
        )
    codes = []
    for path in paths:
        print_message(f"{path}:")
        try:
            codes.append(_run_one(str(path), level, dict(options), trust=trust, as_json=as_json))
        except NotRunnable as error:
            print_message(str(error))
            codes.append(REFUSED)
    print_message(f"{codes.count(DONE)} of {len(codes)} fail as they were recorded")
    return max(codes)


def _run_one(
    name: str, level: str | None, options: dict[str, Any], *, trust: bool, as_json: bool
) -> int:
    from compileboard.collectors.repro.describing import describe_rerun
    from compileboard.collectors.repro.loading import load_record
    from compileboard.collectors.repro.rerun import LIMITED, SAME

    started_us = read_clock_us()
    if name.endswith(".rec"):
        read_destination(options)
        loaded, task = load_record(Path(name)), "replay"
        loaded.check_trust(is_trusted=trust)
    else:
        loaded, task = load_trusted(name, options, trust=trust), "rerun"
    answer = run_repro_task(
        loaded, f"compileboard.collectors.repro.rerun:{task}", {"level": level}, **options
    )
    save_command_result(loaded, "run", started_us, answer)
    if as_json:
        print_json(answer)
    else:
        print(describe_rerun(loaded, answer))
    return {SAME: DONE, LIMITED: REFUSED}.get(answer["status"], FAILED)


@repro.command("check", cls=Command)
@name_argument
@origin_options
@level_option
@click.option(
    "--strict", is_flag=True, help="Expect the bits of eager, not the same within the precision."
)
@trial_options
@json_option
def check_command(
    name: str, level: str | None, strict: bool, trust: bool, as_json: bool, **options: Any
) -> int:
    """Compare the outputs of a repro's compiled graph, and its inputs afterwards, with those of
    eager and of float64.

    Exit code 0: it differs. 1: it does not. 2: it could not be compared.
    """
    from compileboard.collectors.repro.describing import describe_check
    from compileboard.collectors.repro.repro import WRONG_ANSWERS
    from compileboard.collectors.repro.rerun import LIMITED, PASSES

    loaded, started_us = load_trusted(name, options, trust=trust), read_clock_us()
    asked = {"level": level, "kind": "accuracy", "strict": strict}
    answer = run_repro_task(loaded, "compileboard.collectors.repro.rerun:rerun", asked, **options)
    save_command_result(loaded, "check", started_us, answer)
    if as_json:
        print_json(answer)
    else:
        print(describe_check(loaded, answer))
    if answer["status"] == PASSES:
        return FAILED
    return (
        DONE
        if answer["status"] != LIMITED and answer["failure_status"] in WRONG_ANSWERS
        else REFUSED
    )


@repro.command("get-args", cls=Command)
@name_argument
@origin_options
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write.",
)
@level_option
@trial_options
@json_option
def get_args_command(
    name: str, output: Path, level: str | None, trust: bool, as_json: bool, **options: Any
) -> int:
    """Write a repro's inputs into a file that `torch.load` reads, and print a description
    of them.
    """
    from compileboard.collectors.repro.describing import describe_inputs

    loaded = load_trusted(name, options, trust=trust)
    asked = {"level": level, "output": os.path.abspath(output)}
    answer = run_repro_task(
        loaded, "compileboard.collectors.repro.rerun:write_inputs", asked, **options
    )
    if as_json:
        print_json(answer)
    else:
        print(describe_inputs(answer))
    return DONE


@repro.command("export", cls=Command)
@name_argument
@origin_options
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help="File to write: .py for one script, .tar.gz for an archive with all values.",
)
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@preload_option
def export_command(
    name: str, output: str, force: bool, preload: tuple[str, ...], **options: Any
) -> int:
    """Write a repro as one file: a script that needs only torch, or an archive.

    A script contains the input values if they are at most 1 MB; otherwise it generates random ones
    from a seed.
    """
    from compileboard.collectors.repro.sending import export_repro

    loaded = load_any(name, options)
    preload = preload or tuple(recall_preload(loaded, os.environ)[0])
    print_message(export_repro(loaded, output, preload, is_forced=force))
    return DONE


@repro.command("import", cls=Command)
@name_argument
@db_option
@click.option("--name", "run_name", metavar="NAME", help="Name of its run. Default: the file's.")
def import_command(name: str, db: str, run_name: str | None) -> int:
    """Store a repro from a file in a database, as a run of its own. The repro is not executed."""
    from compileboard.collectors.repro.loading import load_repro
    from compileboard.collectors.repro.sending import import_repro

    loaded = load_repro(name, os.path.abspath(db), os.environ)
    if loaded.id is not None:
        raise NotRunnable(
            f"{loaded.name} is in {db} already; expected a file, an archive or a folder"
        )
    repro_id, is_new = import_repro(loaded, os.path.abspath(db), run_name)
    print_message(f"{'stored as' if is_new else 'known as'} repro {repro_id} in {db}")
    return DONE


@repro.command("push", cls=Command)
@name_argument
@db_option
@server_options
def push_command(name: str, db: str, **values: Any) -> int:
    """Send a repro to a server, which stores it as text and never runs it."""
    from compileboard.collectors.push.outbox import outbox_root
    from compileboard.collectors.push.outbox_report import deliver
    from compileboard.collectors.repro.loading import load_repro
    from compileboard.collectors.repro.sending import queue_repro

    config = RunConfig(**read_server(values))
    loaded = load_repro(name, os.path.abspath(db), os.environ)
    queued, sent_id = queue_repro(loaded, outbox_root(os.environ), config, print_message)
    if not deliver(os.environ, queued, print_message):
        return FAILED
    print_message(f"the repro is {config.server}/repros/{sent_id}")
    return DONE
