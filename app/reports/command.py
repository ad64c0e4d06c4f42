"""`compileboard export`: write a run's report, or a comparison, to a file or to stdout."""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from app.queries.page import FilterError
from app.queries.run_detail import get_run
from app.queries.run_lookup import find_run_ids
from app.queries.runs import list_runs
from app.reports import FOLDERS, FORMATS
from app.reports.csv import COLUMNS, DEFAULT_TABLE
from app.settings import load_settings
from collectors.store.connect import open_reader
from collectors.store.errors import StoreError, explain

EPILOG = """\
formats:
  html   one file to read and forward: opens offline, with charts, light and dark, printable
         --payloads puts the run's graphs, generated code and guards into it, up to 64 MiB
  json   everything recorded of the run, under the API's names
  csv    one table for a spreadsheet or a program: --table names it
  md     a summary for a pull request's comment
  upstream  the run's benchmark results as PyTorch's harness writes them: a folder of CSV and JSON that its own
         checkers take (--output names the folder); --raw-timings adds each repeat's time

examples:
  %(prog)s --run 01JD3W --format html --output report.html
  %(prog)s --run 01JD3W --format csv --table graph_breaks --output breaks.csv
  %(prog)s --run latest --format upstream --output results
  %(prog)s --run 01JD3W --format md --output - --no-source | gh pr comment 12 --body-file -
  %(prog)s --compare branch:main 01JD3W --format md --output -

--compare writes what changed from BASE to NEW as html, json, csv or md. A side is a run's id or its beginning,
commit:HASH, branch:NAME, torch:VERSION or baseline:NAME; of a commit, branch or version the newest run of each suite.

The id is on the run's page and in `python -m collectors list`; its beginning is enough if no other run has the same.
Exit codes: 0 written, 1 no such run or the output cannot be written, 2 the database cannot be used or a bad option.
"""


# What a pipe holds: some kernels count a longer write as done although its reader went away in the middle.
_PIECE_BYTES = 64 * 1024


def add_parser(commands: Any) -> None:
    """Describe `export` to the command line."""
    parser = commands.add_parser(
        "export",
        help="write a run's report or a comparison as HTML, JSON, CSV or Markdown, or results as upstream's files",
        description="Write one run's report, or what changed between two sides. The file appears whole or not at all; "
        "one that is there is replaced.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", metavar="ID", help="A run's id or its beginning, or latest.")
    what.add_argument("--compare", nargs=2, metavar=("BASE", "NEW"), help="Two sides: what changed from BASE to NEW.")
    parser.add_argument("--format", required=True, choices=(*FORMATS, *FOLDERS), help="What to write.")
    parser.add_argument(
        "--output", required=True, metavar="PATH", help="Where to write it; - is stdout. For upstream a folder."
    )
    parser.add_argument("--db", metavar="FILE", help="The database file. Default: compileboard.db.")
    parser.add_argument(
        "--table", choices=tuple(COLUMNS), help=f"Which table csv has. Default: {DEFAULT_TABLE}. For csv alone."
    )
    parser.add_argument("--payloads", action="store_true", help="Put graphs and code into the file. For html alone.")
    parser.add_argument("--raw-timings", action="store_true", help="Add each repeat's time. For upstream alone.")
    parser.add_argument("--suite", help="Compare this suite alone. For --compare.")
    parser.add_argument("--anyway", action="store_true", help="Compare numbers across machines. For --compare.")
    parser.add_argument("--no-source", action="store_true", help="Leave out the lines of the program's source code.")
    parser.set_defaults(function=export)


def export(arguments: argparse.Namespace) -> int:
    """Write the report; return the exit code."""
    if arguments.table and arguments.format != "csv":
        return _fail(f"--table is for csv alone; --format is {arguments.format}", 2)
    if arguments.payloads and arguments.format != "html":
        return _fail(f"--payloads is for html alone; --format is {arguments.format}", 2)
    if arguments.payloads and arguments.no_source:
        return _fail(
            "--payloads and --no-source exclude each other: graphs and code have lines of the program inside", 2
        )
    refusal = _refuse_folder(arguments) or _refuse_comparison(arguments)
    if refusal is not None:
        return _fail(refusal, 2)
    path = load_settings(os.environ, {"db": arguments.db}).db
    try:
        with closing(open_reader(path)) as reader:
            return _export(reader, arguments)
    except StoreError as error:
        return _fail(str(error), 2)
    except sqlite3.Error as error:
        return _fail(str(explain(error, path)), 2)


def _refuse_folder(arguments: argparse.Namespace) -> str | None:
    if arguments.format not in FOLDERS:
        return "--raw-timings is for upstream alone" if arguments.raw_timings else None
    if arguments.output == "-":
        return f"{arguments.format} is a folder of files, which stdout cannot take; give --output a folder's name"
    if arguments.no_source:
        return f"{arguments.format} has no line of source to leave out; call it without --no-source"
    return None


def _refuse_comparison(arguments: argparse.Namespace) -> str | None:
    if not arguments.compare:
        return "--suite and --anyway are for --compare" if arguments.suite or arguments.anyway else None
    if arguments.format in FOLDERS:
        return f"--compare is written as {', '.join(FORMATS)}; --format is {arguments.format}"
    given = [name for name in ("table", "payloads", "no_source") if getattr(arguments, name)]
    return f"--{given[0].replace('_', '-')} is for --run; --compare has none of it" if given else None


def _compare(reader: sqlite3.Connection, arguments: argparse.Namespace) -> int:
    # Imported here, as templates and charts are.
    from app.analysis.comparison_sides import read_comparison
    from app.reports.comparison import write_comparison

    base, new = arguments.compare
    try:
        found = read_comparison(reader, base, new, anyway=arguments.anyway, suite=arguments.suite)
    except FilterError as error:
        return _fail(f"--compare {error}")
    return _write(arguments.output, write_comparison(found, arguments.format, time.time_ns() // 1000))


def _export(reader: sqlite3.Connection, arguments: argparse.Namespace) -> int:
    if arguments.compare:
        return _compare(reader, arguments)
    # Imported here: templates and charts, which no other command needs.
    from app.reports.formats import write_report

    found = _find(reader, arguments.run)
    if len(found) > 1:
        return _fail(f"--run {arguments.run!r} fits several runs, give more of the id: {', '.join(found[:3])}, …")
    detail = get_run(reader, found[0]) if found else None
    if detail is None:
        known = "python -m collectors list"
        return _fail(f"there is no run {arguments.run!r} in this database; `{known}` lists the runs")
    if arguments.format in FOLDERS:
        return _export_folder(reader, detail.run.id, arguments)
    table, source = arguments.table or DEFAULT_TABLE, not arguments.no_source
    now_us, payloads = time.time_ns() // 1000, arguments.payloads
    pieces = write_report(reader, detail, arguments.format, table, source, now_us, payloads=payloads)
    return _write(arguments.output, pieces)


def _write(output: str, pieces: Iterable[bytes]) -> int:
    try:
        if output == "-":
            return _write_stdout(pieces)
        write_file(output, pieces)
    except OSError as error:
        return _fail(f"cannot write {output}: {error.strerror or error}")
    return 0


def _find(reader: sqlite3.Connection, text: str) -> list[str]:
    if text == "latest":
        return [it.id for it in list_runs(reader, limit=1, pinned_first=False).rows]
    return find_run_ids(reader, text)


def _export_folder(reader: sqlite3.Connection, run_id: str, arguments: argparse.Namespace) -> int:
    from app.queries.results import load_measured
    from app.queries.task_events import load_task_breaks
    from collectors.formats.write import write_directory
    from collectors.formats.write_tables import is_written

    results = load_measured(reader, run_id)
    if not results:
        return _fail(f"run {run_id} has no benchmark results; `python -m collectors bench` records some")
    if not any(is_written(it) for it in results):
        whys = sorted({it.reason or it.experiment for it in results})[:3]
        return _fail(
            f"upstream's files have no row for any of the {len(results)} results of run {run_id} ({', '.join(whys)}): "
            "they hold what was measured or failed; nothing was written. `--format csv --table results` writes these"
        )
    breaks = load_task_breaks(reader, run_id)
    try:
        names = write_directory(results, breaks, arguments.output, raw_timings=arguments.raw_timings)
    except OSError as error:
        return _fail(f"cannot write {arguments.output}: {error.strerror or error}")
    sys.stderr.write(f"compileboard: {len(names)} files written to {arguments.output}\n")
    return 0


def _write_stdout(pieces: Iterable[bytes]) -> int:
    try:
        for piece in pieces:
            for start in range(0, len(piece), _PIECE_BYTES):
                sys.stdout.buffer.write(piece[start : start + _PIECE_BYTES])
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader has what it wanted. Python flushes stdout once more at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def write_file(path: str, pieces: Iterable[bytes]) -> None:
    """Write a file that appears whole or not at all; a device or a pipe is written as it is.

    Raises: OSError if it cannot be written; then nothing is left behind.
    """
    target = os.path.realpath(path)  # a link stays, and what it names is replaced
    if os.path.isdir(target):
        raise IsADirectoryError(0, "it is a folder; give a file's name")
    if os.path.exists(target) and not os.path.isfile(target):
        with open(target, "wb") as device:
            device.writelines(pieces)
        return
    handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(target)}.", dir=os.path.dirname(target))
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
        os.chmod(temporary, _mode_of(target))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _mode_of(target: str) -> int:
    if os.path.exists(target):
        return os.stat(target).st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _fail(message: str, code: int = 1) -> int:
    sys.stderr.write(f"compileboard: {message}\n")
    return code
