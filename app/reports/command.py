"""`compileboard export`: write a run's report, a comparison or a suite over a period to a file or to stdout."""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import time
from contextlib import closing
from typing import Any

from compileboard.app.format import format_plural
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.run_detail import get_run
from compileboard.app.queries.run_lookup import find_run_ids
from compileboard.app.queries.runs import get_latest
from compileboard.app.queries.sides import name_runs
from compileboard.app.reports import FOLDERS, FORMATS, SUITE_TABLES, TABULAR
from compileboard.app.reports.csv import COLUMNS, DEFAULT_TABLE
from compileboard.app.reports.output import fail, write_output
from compileboard.app.reports.suite_command import add_suite_options, export_suite, list_given
from compileboard.app.settings import load_settings
from compileboard.collectors.store.connect import open_reader
from compileboard.collectors.store.errors import StoreError, explain

EPILOG = """\
formats:
  html   one file to read and forward: opens offline, with charts, light and dark, printable
         --payloads puts the run's graphs, generated code and guards into it, up to 64 MiB
  json   everything recorded of the run, under the API's names
  csv    one table for a spreadsheet or a program: --table names it
  parquet  the same table with types, for pandas, DuckDB, Spark; needs pip install 'compileboard[parquet]'
  md     a summary for a pull request's comment
  upstream  the run's benchmark results as PyTorch's harness writes them: a folder of CSV and JSON that its own
         checkers take (--output names the folder); --raw-timings adds each repeat's time

examples:
  %(prog)s --run 01JD3W --format html --output report.html
  %(prog)s --run 01JD3W --format csv --table graph_breaks --output breaks.csv
  %(prog)s --run latest --format upstream --output results
  %(prog)s --run 01JD3W --format md --output - --no-source | gh pr comment 12 --body-file -
  %(prog)s --compare branch:main 01JD3W --format md --output -
  %(prog)s --compare previous latest --format html --output changes.html
  %(prog)s --suite nightly --since 2026-10-01 --until 2026-10-31 --format html --output october.html
  %(prog)s --site public --db team.db      the dashboard as files for any web server, docs/site.md

--compare writes what changed from BASE to NEW as html, json, csv, parquet or md. A side is a run's id or its
beginning, commit:HASH, branch:NAME, torch:VERSION or baseline:NAME; of a commit, branch or version the newest run of
each suite. NEW may be latest, the newest run; BASE latest or previous, which are of NEW's name and suite, the newest
other run or the newest before it, as with `check`.

--suite without --run and --compare writes what the suite came to over a period: start, end, change, trends, findings,
failures. `compileboard report` writes such a file for every suite, for cron.

The id is on the run's page and in `compileboard-collect list`; its beginning is enough if no other run has the same.
Exit codes: 0 written, 1 no such run or suite or the output cannot be written, 2 the database cannot be used or a bad
option.
"""


def add_parser(commands: Any) -> tuple[argparse.ArgumentParser, Any]:
    """Describe `export` to the command line; return its parser and the group of what it can write."""
    parser = commands.add_parser(
        "export",
        help="write a run's report, a comparison or a suite over a period as HTML, JSON, CSV, Parquet or Markdown",
        description="Write one run's report, what changed between two sides, or a suite over a period. The file "
        "appears whole or not at all; one that is there is replaced.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--run", metavar="ID", help="A run's id or its beginning, or latest.")
    what.add_argument("--compare", nargs=2, metavar=("BASE", "NEW"), help="Two sides: what changed from BASE to NEW.")
    parser.add_argument("--format", choices=(*FORMATS, *FOLDERS), help="What to write.")
    parser.add_argument("--output", metavar="PATH", help="Where to write it; - is stdout. For upstream a folder.")
    parser.add_argument("--db", metavar="FILE", help="The database file. Default: compileboard.db.")
    parser.add_argument(
        "--table",
        choices=tuple(dict.fromkeys((*COLUMNS, *SUITE_TABLES))),
        help=f"Which table csv or parquet has. Of a run: {', '.join(COLUMNS)}; default: {DEFAULT_TABLE}. "
        f"Of a suite: {', '.join(SUITE_TABLES)}; default: {SUITE_TABLES[0]}.",
    )
    parser.add_argument("--payloads", action="store_true", help="Put graphs and code into it. For html and --site.")
    parser.add_argument("--raw-timings", action="store_true", help="Add each repeat's time. For upstream alone.")
    parser.add_argument("--suite", metavar="NAME", help="Write this suite over a period; with --compare, it alone.")
    parser.add_argument("--anyway", action="store_true", help="Compare numbers across machines. For --compare.")
    parser.add_argument("--no-source", action="store_true", help="Leave out the lines of the program's source code.")
    add_suite_options(parser)
    parser.set_defaults(function=export)
    return parser, what  # app.site adds --site, which stands above this room


def export(arguments: argparse.Namespace) -> int:
    """Write the report; return the exit code."""
    refusal = _refuse(arguments)
    if refusal is not None:
        return fail(refusal, 2)
    path = load_settings(os.environ, {"db": arguments.db}).db
    try:
        with closing(open_reader(path)) as reader:
            return _export(reader, arguments)
    except FilterError as error:
        return fail(str(error), 2)
    except StoreError as error:
        return fail(str(error), 2)
    except sqlite3.Error as error:
        return fail(str(explain(error, path)), 2)


def _refuse(arguments: argparse.Namespace) -> str | None:
    """Say what of the options does not go together."""
    if arguments.run is arguments.compare is arguments.suite is None:
        return "say what to write: --run ID, --compare BASE NEW, --suite NAME or --site DIR"
    missing = [f"--{name}" for name in ("format", "output") if getattr(arguments, name) is None]
    if missing:
        return f"{' and '.join(missing)} must be given: what to write, and where"
    if arguments.table and arguments.format not in TABULAR:
        return f"--table is for {' and '.join(TABULAR)} alone; --format is {arguments.format}"
    if arguments.payloads and arguments.format != "html":
        return f"--payloads is for html alone; --format is {arguments.format}"
    if arguments.payloads and arguments.no_source:
        return "--payloads and --no-source exclude each other: graphs and code have lines of the program inside"
    return _refuse_folder(arguments) or _refuse_others(arguments)


def _refuse_folder(arguments: argparse.Namespace) -> str | None:
    if arguments.format not in FOLDERS:
        return "--raw-timings is for upstream alone" if arguments.raw_timings else None
    if arguments.output == "-":
        return f"{arguments.format} is a folder of files, which stdout cannot take; give --output a folder's name"
    if arguments.no_source:
        return f"{arguments.format} has no line of source to leave out; call it without --no-source"
    return None


def _refuse_others(arguments: argparse.Namespace) -> str | None:
    """Say which option belongs to another report."""
    given = list_given(arguments)
    if arguments.run is not None:
        given += [f"--{name}" for name in ("suite", "anyway") if getattr(arguments, name)]
        if given:
            return f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} not for --run"
        known: tuple[str, ...] = tuple(COLUMNS)
    else:
        what = "--compare" if arguments.compare else "--suite"
        if arguments.format in FOLDERS:
            return f"{what} is written as {', '.join(FORMATS)}; --format is {arguments.format}"
        given = given if arguments.compare else ["--anyway"] if arguments.anyway else []
        given += [f"--{it.replace('_', '-')}" for it in ("payloads", "no_source") if getattr(arguments, it)]
        known = () if arguments.compare else SUITE_TABLES
        if arguments.compare and arguments.table:
            given.append("--table")
        if given:
            return f"{given[0]} is not for {what}, which has none of it"
    if arguments.table and arguments.table not in known:
        return f"--table {arguments.table} is of another report; known here are {', '.join(known)}"
    return None


def _compare(reader: sqlite3.Connection, arguments: argparse.Namespace) -> int:
    # Imported here, as templates and charts are.
    from compileboard.app.analysis.comparison_sides import read_comparison
    from compileboard.app.reports.comparison import write_comparison

    try:
        base, new = name_runs(reader, *arguments.compare)
        found = read_comparison(reader, base, new, anyway=arguments.anyway, suite=arguments.suite)
    except FilterError as error:
        return fail(f"--compare {error}")
    return write_output(arguments.output, write_comparison(found, arguments.format, time.time_ns() // 1000))


def _export(reader: sqlite3.Connection, arguments: argparse.Namespace) -> int:
    if arguments.compare:
        return _compare(reader, arguments)
    if arguments.run is None:
        return export_suite(reader, arguments)
    # Imported here: templates and charts, which no other command needs.
    from compileboard.app.reports.formats import write_report

    found = _find(reader, arguments.run)
    if len(found) > 1:
        return fail(f"--run {arguments.run!r} fits several runs, give more of the id: {', '.join(found[:3])}, …")
    detail = get_run(reader, found[0]) if found else None
    if detail is None:
        known = "compileboard-collect list"
        return fail(f"there is no run {arguments.run!r} in this database; `{known}` lists the runs")
    if arguments.format in FOLDERS:
        return _export_folder(reader, detail.run.id, arguments)
    table, source = arguments.table or DEFAULT_TABLE, not arguments.no_source
    now_us, payloads = time.time_ns() // 1000, arguments.payloads
    pieces = write_report(reader, detail, arguments.format, table, source, now_us, payloads=payloads)
    return write_output(arguments.output, pieces)


def _find(reader: sqlite3.Connection, text: str) -> list[str]:
    if text == "latest":
        newest = get_latest(reader)
        return [newest.id] if newest else []
    return find_run_ids(reader, text)


def _export_folder(reader: sqlite3.Connection, run_id: str, arguments: argparse.Namespace) -> int:
    from compileboard.app.queries.results import load_measured
    from compileboard.app.queries.task_events import load_task_breaks
    from compileboard.collectors.formats.write import write_directory
    from compileboard.collectors.formats.write_tables import is_written

    results = load_measured(reader, run_id)
    if not results:
        return fail(f"run {run_id} has no benchmark results; `compileboard-collect bench` records some")
    if not any(is_written(it) for it in results):
        whys = sorted({it.reason or it.experiment for it in results})[:3]
        counted = format_plural(len(results), "result")
        return fail(
            f"upstream's files have no row for any of the {counted} of run {run_id} ({', '.join(whys)}): "
            "they hold what was measured or failed; nothing was written. `--format csv --table results` writes these"
        )
    breaks = load_task_breaks(reader, run_id)
    try:
        names = write_directory(results, breaks, arguments.output, raw_timings=arguments.raw_timings)
    except OSError as error:
        return fail(f"cannot write {arguments.output}: {error.strerror or error}")
    sys.stderr.write(f"compileboard: {format_plural(len(names), 'file')} written to {arguments.output}\n")
    return 0
