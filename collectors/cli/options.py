"""What the collector's command line takes: its commands and options."""

from __future__ import annotations

import argparse

from compileboard import __version__
from compileboard.collectors.cli.bench_options import add_bench, count, maybe_pair, pair
from compileboard.collectors.terminal import command_hints

EPILOG = """examples:
  {collect} run -- python train.py --lr 3
  {collect} run --name nightly --suite llm --tag gpu=h200 -- torchrun --nproc-per-node 2 train.py
  {collect} import /tmp/trace            what TORCH_TRACE=/tmp/trace wrote
  {collect} bench                        the built-in suite, eager and compiled
  {collect} list
  {collect} show 01JD
  {serve}            then open http://127.0.0.1:8000
"""


def build_parser() -> argparse.ArgumentParser:
    """Describe every command and option."""
    parser = argparse.ArgumentParser(
        prog=command_hints.collector_command(),
        description="Record what torch.compile does in a program: compiles, graph breaks, recompiles and why.",
        epilog=EPILOG.format(collect=command_hints.collector_command(), serve=command_hints.dashboard_command("serve")),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"CompileBoard {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_run(commands)
    _add_import(commands)
    _add_commits(commands)
    _add_index(commands)
    add_bench(commands, command_hints.DEFAULT_DATABASE)
    _add_retry(commands)
    listing = commands.add_parser("list", help="list the newest runs of a database")
    _add_db(listing)
    listing.add_argument("--limit", type=count, default=20, metavar="N", help="how many runs (default 20)")
    listing.add_argument("--suite", metavar="NAME", help="only runs of this suite")
    listing.add_argument(
        "--tag",
        action="append",
        default=[],
        type=maybe_pair,
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
        "--tag",
        action="append",
        default=[],
        type=pair,
        metavar="KEY=VALUE",
        help="a label to find it by; repeatable",
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
    run.add_argument(
        "--stack-room",
        action="store_true",
        help="start Python programs with room on CPython's frame stack, whose chunks can slow compiled models down",
    )
    run.add_argument("--quiet", action="store_true", help="say nothing but errors")
    run.add_argument("argv", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _add_import(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    importing = commands.add_parser(
        "import",
        help="read torch's own trace logs (TORCH_TRACE) and upstream's benchmark results",
        description="Read torch's own trace logs into the database: a log, a folder of logs (its ranks and processes "
        "become one run), a .gz, .zst, .xz, .tar.* or .zip of either, or - for standard input. Read what PyTorch's "
        "benchmark harness, CI and HUD write the same way: CSV, JSON and raw timings. Importing again adds only what "
        "is new.",
        epilog="example: TORCH_TRACE=/tmp/trace python train.py; %(prog)s /tmp/trace",
    )
    _add_db(importing)
    importing.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a log, a file of results, a folder, an archive, or -; each is a run, files of one folder are one",
    )
    importing.add_argument("--latest", action="store_true", help="of a folder, only the newest log and its ranks")
    importing.add_argument("--follow", action="store_true", help="keep reading logs that grow, until Ctrl-C")
    importing.add_argument("--strict", action="store_true", help="end with 1 if anything could not be read")
    importing.add_argument(
        "--no-payloads", action="store_true", help="keep no graphs, code and guards: only what the tables need"
    )
    importing.add_argument(
        "--redact-source", action="store_true", help="keep no line of the program's source code, wherever torch put it"
    )
    importing.add_argument("--name", metavar="NAME", help="the run's name (default: the program's file, or the folder)")
    importing.add_argument(
        "--suite", metavar="NAME", help="what the run belongs to; results too whose rows name no suite"
    )
    importing.add_argument(
        "--tag",
        action="append",
        default=[],
        type=pair,
        metavar="KEY=VALUE",
        help="a label to find it by; repeatable",
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
    bounds.add_argument("--limit-bytes", type=count, metavar="N", help="the most bytes that may come out of archives")
    bounds.add_argument(
        "--limit-ratio", type=count, metavar="N", help="how many times its own size may come out of a file"
    )
    for name, text in (
        ("entries", "the most entries that the archives may have"),
        ("records", "the most records that may come of it"),
        ("rows", "the most rows that it may write into the database"),
    ):
        bounds.add_argument(f"--limit-{name}", type=count, metavar="N", help=text)
    bounds.add_argument(
        "--names", metavar="FILE", help="a JSON object: what files are called, by their names on disk below PATH"
    )
    bounds.add_argument(
        "--progress-lines",
        action="store_true",
        help="write how it goes to standard output, a JSON object a line; end when nobody reads it",
    )


def _add_commits(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    commits = commands.add_parser(
        "commits",
        help="tell the history of a repository, by which commits are ordered",
        description="Add the history of a git clone at hand to the database, along first parents: hash, time, author's "
        "name, subject. Trends then order its commits by ancestry, and a finding names the commits in its range. "
        "`run`, `bench` and code tell the newest 300 commits by themselves; this is for imported results, which name "
        "a commit alone, and for gaps. Calling it again adds only what is new.",
        epilog="example: %(prog)s --repository ~/pytorch --branch origin/main",
    )
    _add_db(commits)
    commits.add_argument(
        "--repository", default=".", metavar="PATH", help="a folder inside the clone (default: this folder)"
    )
    commits.add_argument(
        "--branch", default="HEAD", metavar="NAME", help="a branch, tag or commit (default: what is checked out)"
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


def _add_retry(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    retry = commands.add_parser(
        "retry",
        help="record runs that were set aside because they could not be recorded",
        description="Record runs that were set aside because they could not be recorded, all or those given. "
        "`list` and `doctor` name them and say why.",
        epilog="example: %(prog)s 01JD --db another.db",
    )
    retry.add_argument("--db", metavar="FILE", help="record them into this database instead of their own")
    retry.add_argument("runs", nargs="*", metavar="RUN", help="a run's id or its start (default: all)")


def _add_db(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--db",
        default=command_hints.DEFAULT_DATABASE,
        metavar="FILE",
        help="the database (default compileboard.db in this folder)",
    )
