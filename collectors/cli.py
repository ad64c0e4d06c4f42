"""The collector's command line: run, list, show, doctor."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import collectors
from collectors.record.progress import counts_text, progress_line
from collectors.store.errors import StoreError

USAGE_ERROR = 2
EPILOG = """examples:
  compileboard-collect run -- python train.py --lr 3
  compileboard-collect run --name nightly --suite llm --tag gpu=h200 -- torchrun --nproc-per-node 2 train.py
  compileboard-collect list
  compileboard-collect show 01JD
  compileboard serve            then open http://127.0.0.1:8000
"""


def build_parser() -> argparse.ArgumentParser:
    """Describe every command and option."""
    parser = argparse.ArgumentParser(
        prog="compileboard-collect",
        description="Record what torch.compile does in a program: compiles, graph breaks, recompiles and why.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"CompileBoard {collectors.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_run(commands)
    listing = commands.add_parser("list", help="list the newest runs of a database")
    _add_db(listing)
    listing.add_argument("--limit", type=_positive, default=20, metavar="N", help="how many runs (default 20)")
    show = commands.add_parser("show", help="print one run's summary")
    show.add_argument("run", metavar="RUN", help="the run's id, or as much of its start as tells it apart")
    _add_db(show)
    doctor = commands.add_parser("doctor", help="say what this machine, torch and environment can record, and why")
    _add_db(doctor)
    return parser


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser(
        "run",
        help="observe a command and everything it starts",
        usage="compileboard-collect run [options] -- COMMAND [ARGUMENT ...]",
        description="Observe a command and everything it starts: subprocesses, torchrun ranks, forked workers. "
        "The program's output, exit code and exceptions stay as they are.",
        epilog="example: compileboard-collect run --tag branch=main -- python train.py --lr 3",
    )
    _add_db(run)
    run.add_argument("--name", metavar="NAME", help="the run's name (default: the script's)")
    run.add_argument("--suite", metavar="NAME", help="what the run belongs to; overview charts are per suite and name")
    run.add_argument(
        "--tag", action="append", default=[], type=_tag, metavar="KEY=VALUE", help="a label to find it by; repeatable"
    )
    run.add_argument(
        "--level",
        choices=("light", "full"),
        default="light",
        help="light: compiles, breaks, recompiles, caches, failures, at no measurable cost (default); "
        "full: also torch's own trace file, which slows compiles by about a tenth",
    )
    run.add_argument("--no-source", action="store_true", help="keep no line of the program's source code")
    run.add_argument(
        "--capture-env",
        action="append",
        default=[],
        metavar="NAME",
        help="also keep this environment variable (TORCH* is kept anyway, secrets never); repeatable",
    )
    run.add_argument("--quiet", action="store_true", help="say nothing but errors")
    run.add_argument("argv", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _add_db(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--db", default="compileboard.db", metavar="FILE", help="the database (default compileboard.db in this folder)"
    )


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 up, got {text!r}")
    return int(text)


def _tag(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return key.strip(), value


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    arguments = build_parser().parse_args(argv)
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "run": run_command,
        "list": list_command,
        "show": show_command,
        "doctor": doctor_command,
    }
    try:
        return commands[arguments.command](arguments)
    except (StoreError, ValueError) as error:
        say(str(error))
        return USAGE_ERROR
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def say(text: str) -> None:
    """Print one line of our own, apart from the program's output."""
    if sys.stderr is None:  # closed by the caller; print() would then take stdout
        return
    try:
        print(f"compileboard: {text}", file=sys.stderr, flush=True)
    except OSError:  # nobody reads it any more: no reason to leave the program alone
        pass


def run_command(arguments: argparse.Namespace) -> int:
    """Observe a command; end as it ended."""
    from collectors.record.launch import CannotRun, Launch, Request, end_like

    command = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    if not command:
        say("no command to run; write it after `--`: compileboard-collect run -- python train.py")
        return USAGE_ERROR
    if arguments.no_source and arguments.level == "full":
        say("--level full keeps torch's trace, which is full of source code; it cannot go with --no-source")
        return USAGE_ERROR
    pick_up()
    request = Request(
        command=command,
        database=arguments.db,
        name=arguments.name,
        suite=arguments.suite,
        tags=dict(arguments.tag),
        level=arguments.level,
        keep_source=not arguments.no_source,
        capture_env=tuple(arguments.capture_env),
        quiet=arguments.quiet,
    )
    whisper: Callable[[str], None] = (lambda _: None) if arguments.quiet else say
    launch = Launch(request, os.environ, say)
    launch.open()
    whisper(f"run {launch.manifest.run_id} is recorded in {arguments.db}; see it with: {serve_hint(arguments.db)}")
    for warning in unreachable(command):
        whisper(warning)
    progress = None if arguments.quiet else progress_line(os.environ)
    try:
        with progress or nullcontext():
            outcome = launch.run(progress.show if progress else None)
    except CannotRun as error:
        say(str(error))
        return error.exit_code
    whisper(closing_line(arguments.db, launch.manifest.run_id))
    return end_like(outcome)


def serve_hint(database: str) -> str:
    """Name the command that shows this database."""
    return "compileboard serve" + ("" if database == "compileboard.db" else f" --db {database}")


def unreachable(command: list[str]) -> list[str]:
    """Say which of a command's own switches keep the hooks out."""
    program = os.path.basename(command[0])
    if not program.startswith("python"):
        return []
    for word in _switches(command[1:]):
        for letter in "IES":
            if letter in word:
                return [f"python -{letter} ignores PYTHONPATH or sitecustomize: this interpreter cannot be observed"]
    return []


def _switches(words: list[str]) -> Iterator[str]:
    """Yield python's own one-letter switches: up to -c, -m or the script, without the values of -W and -X."""
    value_follows = False
    for word in words:
        if value_follows:
            value_follows = False
        elif not word.startswith("-") or word == "-":
            return
        elif not word.startswith("--"):
            letters = word[1:]
            ends = [place for letter in "cmWX" if (place := letters.find(letter)) >= 0]
            end = min(ends, default=len(letters))
            yield letters[:end]
            if letters[end : end + 1] in ("c", "m"):
                return
            value_follows = bool(ends) and end == len(letters) - 1


def closing_line(database: str, run_id: str) -> str:
    """Say what was recorded, or why there may be nothing."""
    from collectors.record.summary import summarize

    try:
        summary = summarize(database, run_id)
    except StoreError as error:
        return str(error)
    if summary is None:
        return f"run {run_id} is not in {database}"
    if not summary.compile_count:
        return "nothing was compiled: no process that could be observed used torch.compile (`doctor` says what can be)"
    counts = counts_text(summary.compile_count, summary.graph_break_count, summary.recompile_count)
    return f"recorded {counts}; compileboard-collect show {run_id}"


def pick_up() -> None:
    """Record what an earlier command could not, and say so."""
    from collectors.record.pickup import pick_up_spools

    found = pick_up_spools()
    if found.run_ids:
        say(f"picked up {found.event_count} events that had not been recorded, of {', '.join(found.run_ids)}")
    for problem in found.problems:
        say(f"still waiting to be recorded: {problem}")


def list_command(arguments: argparse.Namespace) -> int:
    """Print the newest runs."""
    from collectors.record.listing import list_text

    pick_up()
    print(list_text(arguments.db, arguments.limit))
    return 0


def show_command(arguments: argparse.Namespace) -> int:
    """Print one run's summary."""
    from collectors.record.summary import summarize

    pick_up()
    summary = summarize(arguments.db, arguments.run)
    if summary is None:
        say(f"there is no run {arguments.run!r} in {arguments.db}; `compileboard-collect list` names them")
        return 1
    print(summary.text())
    return 0


def doctor_command(arguments: argparse.Namespace) -> int:
    """Print what can be recorded here, and why not what cannot."""
    from collectors.record.doctor import examine

    checks = examine(arguments.db)
    width = max(len(check.subject) for check in checks)
    for check in checks:
        print(f"{check.mark:<5} {check.subject:<{width}}  {check.finding}")
    return 0 if all(check.mark != "fails" for check in checks) else 1
