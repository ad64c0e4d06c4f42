"""The collector's command line: run, import, index, list, show, doctor."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable
from contextlib import nullcontext, suppress

import collectors
from collectors.record import hints
from collectors.record.progress import counts_text, progress_line
from collectors.store.errors import StoreError, StoreMissing

USAGE_ERROR = 2
NEEDED = {"sqlite_utils": "sqlite-utils", "zstandard": "zstandard"}  # of the collector's extra
EPILOG = """examples:
  {collect} run -- python train.py --lr 3
  {collect} run --name nightly --suite llm --tag gpu=h200 -- torchrun --nproc-per-node 2 train.py
  {collect} import /tmp/trace            what TORCH_TRACE=/tmp/trace wrote
  {collect} list
  {collect} show 01JD
  {serve}            then open http://127.0.0.1:8000
"""


def build_parser() -> argparse.ArgumentParser:
    """Describe every command and option."""
    parser = argparse.ArgumentParser(
        prog=hints.collect(),
        description="Record what torch.compile does in a program: compiles, graph breaks, recompiles and why.",
        epilog=EPILOG.format(collect=hints.collect(), serve=hints.dashboard("serve")),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"CompileBoard {collectors.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_run(commands)
    _add_import(commands)
    _add_index(commands)
    listing = commands.add_parser("list", help="list the newest runs of a database")
    _add_db(listing)
    listing.add_argument("--limit", type=_positive, default=20, metavar="N", help="how many runs (default 20)")
    listing.add_argument("--suite", metavar="NAME", help="only runs of this suite")
    listing.add_argument(
        "--tag",
        action="append",
        default=[],
        type=_wanted_tag,
        metavar="KEY[=VALUE]",
        help="only runs with this tag; repeatable, all must fit",
    )
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
        usage="%(prog)s [options] -- COMMAND [ARGUMENT ...]",
        description="Observe a command and everything it starts: subprocesses, torchrun ranks, forked workers. "
        "The program's output, exit code and exceptions stay as they are.",
        epilog="example: %(prog)s --tag branch=main -- python train.py --lr 3",
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


def _add_import(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    importing = commands.add_parser(
        "import",
        help="read torch's own trace logs (TORCH_TRACE)",
        description="Read torch's own trace logs into the database: a log, a folder of logs (its ranks and processes "
        "become one run), a .gz, .zst, .xz, .tar.* or .zip of either, or - for standard input. Importing again adds "
        "only what is new.",
        epilog="example: TORCH_TRACE=/tmp/trace python train.py; %(prog)s /tmp/trace",
    )
    _add_db(importing)
    importing.add_argument("paths", nargs="+", metavar="PATH", help="a log, a folder, an archive, or -")
    importing.add_argument("--latest", action="store_true", help="of a folder, only the newest log and its ranks")
    importing.add_argument("--follow", action="store_true", help="keep reading logs that grow, until Ctrl-C")
    importing.add_argument("--strict", action="store_true", help="end with 1 if anything could not be read")
    importing.add_argument(
        "--no-payloads", action="store_true", help="keep no graphs, code and guards: only what the tables need"
    )
    importing.add_argument(
        "--redact-source", action="store_true", help="keep no line of the program's source code, wherever torch put it"
    )
    importing.add_argument("--name", metavar="NAME", help="the run's name (default: the program's file)")
    importing.add_argument("--suite", metavar="NAME", help="what the run belongs to")
    importing.add_argument(
        "--tag", action="append", default=[], type=_tag, metavar="KEY=VALUE", help="a label to find it by; repeatable"
    )
    importing.add_argument(
        "--root",
        action="append",
        default=[],
        metavar="DIR",
        help="the repository's folder where the log was written: files are then named from there; repeatable",
    )
    importing.add_argument(
        "--no-index", action="store_true", help="leave the run out of the search index until `index` is called"
    )
    importing.add_argument("--again", action="store_true", help="import it even if its run was deleted")
    bounds = importing.add_argument_group("for programs that import what others sent")
    bounds.add_argument(
        "--limit-bytes", type=_positive, metavar="N", help="the most bytes that may come out of archives"
    )
    bounds.add_argument(
        "--limit-ratio", type=_positive, metavar="N", help="how many times its own size may come out of a file"
    )
    bounds.add_argument(
        "--names", metavar="FILE", help="a JSON object: what files are called, by their names on disk below PATH"
    )
    bounds.add_argument(
        "--progress-lines",
        action="store_true",
        help="write how it goes to standard output, a JSON object a line; end when nobody reads it",
    )


def _add_index(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    indexing = commands.add_parser(
        "index",
        help="put runs into the search index that are not in it yet",
        description="Put into the search index what is not in it yet, of all runs or of those given. `import` and "
        "`run` do so by themselves; this is for older databases, and for what was left out.",
    )
    _add_db(indexing)
    indexing.add_argument("runs", nargs="*", metavar="RUN", help="a run's id or its start (default: all runs)")


def _add_db(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--db",
        default=hints.DEFAULT_DATABASE,
        metavar="FILE",
        help="the database (default compileboard.db in this folder)",
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


def _wanted_tag(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    if not key.strip():
        raise argparse.ArgumentTypeError(f"expected KEY or KEY=VALUE, got {text!r}")
    return key.strip(), value if equals else None


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return USAGE_ERROR
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "run": run_command,
        "import": import_command,
        "index": index_command,
        "list": list_command,
        "show": show_command,
        "doctor": doctor_command,
    }
    try:
        return commands[arguments.command](arguments)
    except StoreMissing:
        example = hints.collect("run", database=arguments.db, then="-- python train.py")
        say(f"There is no database at {arguments.db}. Record a run first: {example}")
        return USAGE_ERROR
    except (StoreError, ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE
        say(str(error))
        return USAGE_ERROR
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        say(f"{NEEDED[error.name]} is not installed; pip install 'compileboard[collector]' brings what is needed here")
        return USAGE_ERROR
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def say(text: str) -> None:
    """Print one line of our own, apart from the program's output."""
    if sys.stderr is None:  # closed by the caller; print() would then take stdout
        return
    with suppress(OSError):  # nobody reads it any more: no reason to leave the program alone
        print(f"compileboard: {text}", file=sys.stderr, flush=True)


def run_command(arguments: argparse.Namespace) -> int:
    """Observe a command; end as it ended."""
    from collectors.record.command import unreachable
    from collectors.record.launch import CannotRun, Launch, Request, check_program, end_like

    command = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    if not command:
        say(f"no command to run; write it after `--`: {hints.collect('run', then='-- python train.py')}")
        return USAGE_ERROR
    if arguments.no_source and arguments.level == "full":
        say("--level full keeps torch's trace, which is full of source code; it cannot go with --no-source")
        return USAGE_ERROR
    try:
        check_program(command, os.environ)
    except CannotRun as error:
        say(str(error))
        return error.exit_code
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
    served = hints.dashboard("serve", database=arguments.db)
    whisper(f"run {launch.manifest.run_id} is recorded in {arguments.db}; see it with: {served}")
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


def import_command(arguments: argparse.Namespace) -> int:
    """Read torch's trace logs."""
    from collectors.importer.command import import_paths, read_names
    from collectors.importer.lines import ProgressLines
    from collectors.importer.loader import Options
    from collectors.read.sources import Limits

    lines = ProgressLines(sys.stdout) if arguments.progress_lines else None
    if lines is None:
        pick_up()
    options = Options(
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
            say=say,
            latest=arguments.latest,
            follow=arguments.follow,
            strict=arguments.strict,
            index=not arguments.no_index,
            limits=Limits(arguments.limit_bytes, arguments.limit_ratio),
            names=read_names(arguments.names),
            lines=lines,
        )
    except (StoreError, ValueError, OSError) as error:
        if lines is not None and not isinstance(error, BrokenPipeError):
            lines.fail(error)
        raise


def index_command(arguments: argparse.Namespace) -> int:
    """Index what is not in the search index yet."""
    from collectors.record.indexing import index_runs

    return index_runs(arguments.db, arguments.runs, say=say)


def closing_line(database: str, run_id: str) -> str:
    """Say what was recorded, or why there may be nothing."""
    from collectors.record.summary import summarize

    try:
        summary = summarize(database, run_id)
    except StoreError as error:
        return str(error)
    if summary is None:
        return f"run {run_id} is not in {database}"
    show = hints.collect("show", run_id, database=database)
    if summary.compile_count:
        return (
            f"recorded {counts_text(summary.compile_count, summary.graph_break_count, summary.recompile_count)}; {show}"
        )
    doctor = hints.collect("doctor", database=database)
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
    from collectors.record.pickup import pick_up_spools

    found = pick_up_spools()
    if found.run_ids:
        events = "1 event" if found.event_count == 1 else f"{found.event_count} events"
        say(f"picked up {events} not recorded so far, of {', '.join(found.run_ids)}")
    for problem in found.problems:
        say(f"still waiting to be recorded: {problem}")


def list_command(arguments: argparse.Namespace) -> int:
    """Print the newest runs."""
    from collectors.record.listing import list_text

    pick_up()
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(list_text(arguments.db, arguments.limit, suite=arguments.suite, tags=arguments.tag, columns=columns))
    return 0


def show_command(arguments: argparse.Namespace) -> int:
    """Print one run's summary."""
    from collectors.record.summary import summarize

    pick_up()
    summary = summarize(arguments.db, arguments.run)
    if summary is None:
        names = hints.collect("list", database=arguments.db)
        say(f"there is no run {arguments.run!r} in {arguments.db}; `{names}` names them")
        return 1
    print(summary.text())
    return 0


def doctor_command(arguments: argparse.Namespace) -> int:
    """Print what can be recorded here, and why not what cannot."""
    from collectors.record.doctor import examine

    checks = examine(arguments.db)
    width = max(len(check.subject) for check in checks)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for check in checks:
        head = f"{check.mark:<5} {check.subject:<{width}}  "
        room = max(30, columns - len(head)) if columns else len(check.finding) + 1
        print(head + f"\n{'':<{len(head)}}".join(textwrap.wrap(check.finding, room, break_on_hyphens=False)))
    return 0 if all(check.mark != "fails" for check in checks) else 1
