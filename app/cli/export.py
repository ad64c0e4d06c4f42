"""`export`: a run's report, a comparison, a suite over a period, or a static site."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any

import click

from compileboard.app.benchmarks.trend_queries import TrendFilter
from compileboard.app.cli.common import db_option, read_command_clock
from compileboard.app.comparison.sides import find_run
from compileboard.app.core.format import format_plural
from compileboard.app.core.page import FilterError
from compileboard.app.core.settings import load_settings
from compileboard.app.core.store import Store, open_store
from compileboard.app.reports import BUNDLE, FOLDERS, FORMATS, SUITE_TABLES, TABULAR
from compileboard.app.reports.csv_report import COLUMNS, DEFAULT_TABLE
from compileboard.app.reports.output import describe_write_error, fail, write_output
from compileboard.app.runs.run_queries import get_run
from compileboard.collectors.store.bundles import write_bundle
from compileboard.collectors.store.rollups import DEFINITIONS
from compileboard.command_line import Choice, Command, Option, Value
from compileboard.exit_codes import DONE, FAILED

DEFAULT_RUNS = 200
DEFAULT_PAGES = 10_000
SET_OPTIONS = ("mode", "dtype", "device", "hardware", "backend", "branch")
_SUITE_OPTIONS = ("since", "until", "last", *SET_OPTIONS, "dynamic", "world_size", "definition")
_SITE_OPTIONS = (
    "site",
    "runs",
    "pages",
    "db",
    "payloads",
    "no_source",
)  # all other options are a report's
EPILOG = """\
formats:
  html   one file to read and forward: opens offline, with charts, light and dark, printable
         --payloads puts the run's graphs, generated code and guards into it, up to 64 MiB
  json   everything recorded of the run, under the API's names
  csv    one table for a spreadsheet or a program: --table names it
  parquet  the same table with types, for pandas, DuckDB, Spark; \
needs pip install 'compileboard[parquet]'
  md     a summary for a pull request's comment
  bundle  the whole run as a database of its own, which serve, \
compileboard-collect import and compileboard.open
         take; several runs with commas between their ids
  upstream  the run's benchmark results as PyTorch's harness writes them: \
a folder of CSV and JSON that its own
         checkers take (--output names the folder); --raw-timings adds each repeat's time

Examples:
  %(prog)s --run 01JD3W --format html --output report.html
  %(prog)s --run 01JD3W --format csv --table graph_breaks --output breaks.csv
  %(prog)s --run latest --format upstream --output results
  %(prog)s --run 01JD3W,01JD3X --format bundle --output runs.bundle.db
  %(prog)s --run 01JD3W --format md --output - --no-source | gh pr comment 12 --body-file -
  %(prog)s --compare branch:main 01JD3W --format md --output -
  %(prog)s --compare previous latest --format html --output changes.html
  %(prog)s --suite nightly --since 2026-10-01 --until 2026-10-31 --format html --output october.html
  %(prog)s --site public --db team.db      the dashboard as files for any web server, docs/site.md

--compare writes what changed from BASE to NEW as html, json, csv, parquet or md. \
A side is a run's id or its
beginning, commit:HASH, branch:NAME, torch:VERSION or baseline:NAME; of a commit, \
branch or version the newest run of
each suite. NEW may be latest, the newest run; BASE latest or previous, \
which are of NEW's name and suite, the newest
other run or the newest before it, as with `check`.

--suite without --run and --compare writes a suite over a period: start, end, change, trends, \
incidents,
failures. `compileboard report` writes such a file for every suite, for cron.

The id is on the run's page and in `compileboard-collect list`; \
its beginning is enough if no other run has the same.
Exit codes: 0 written, 1 --site: a page could not be made, 2 not written.
"""


of_suite = partial(click.option, cls=Option, group="Suite over a period (--suite)")


def _read_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1_000_000):
        raise ValueError(f"{text!r} is not a whole number from 1 to 1000000")
    return int(text)


@click.command(cls=Command, epilog=EPILOG)
@click.option(
    "--run",
    metavar="ID",
    cls=Option,
    exclusive="what",
    help="Run's ID or commit, its beginning, or latest.",
)
@click.option(
    "--compare",
    nargs=2,
    metavar="BASE NEW",
    cls=Option,
    exclusive="what",
    help="Sides to compare, from BASE to NEW.",
)
@click.option(
    "--site",
    metavar="DIR",
    cls=Option,
    exclusive="what",
    help="Write the dashboard as static files into this folder.",
)
@click.option("--format", type=Choice((*FORMATS, *FOLDERS, BUNDLE)), help="Format to write.")
@click.option(
    "--output", metavar="PATH", help="File to write, - for stdout; for upstream a folder."
)
@db_option
@click.option(
    "--table",
    type=Choice(tuple(dict.fromkeys((*COLUMNS, *SUITE_TABLES)))),
    help=f"Which table csv or parquet has. Of a run: {', '.join(COLUMNS)}; default: "
    f"{DEFAULT_TABLE}. "
    f"Of a suite: {', '.join(SUITE_TABLES)}; default: {SUITE_TABLES[0]}.",
    metavar="TABLE",
)
@click.option("--payloads", is_flag=True, help="Include graphs and code. For html and --site.")
@click.option("--raw-timings", is_flag=True, help="Add each repeat's time. Only for upstream.")
@click.option(
    "--suite", metavar="NAME", help="Suite to write over a period; with --compare, the only one."
)
@click.option("--anyway", is_flag=True, help="Compare numbers across machines. For --compare.")
@click.option("--no-source", is_flag=True, help="Leave out the program's source code.")
@of_suite(
    "--since",
    metavar="WHEN",
    help="Start of the period: 2026-10-01 (UTC), or how long ago, as 30d.",
)
@of_suite("--until", metavar="WHEN", help="End of the period, that day included. Default: now.")
@of_suite("--last", metavar="LENGTH", help="Length of the period: 36h, 30d, 12w. Default: 30d.")
@of_suite("--mode", metavar="NAME", help="Only this mode.")
@of_suite("--dtype", metavar="NAME", help="Only this dtype.")
@of_suite("--device", metavar="NAME", help="Only this device.")
@of_suite("--hardware", metavar="NAME", help="Only this hardware.")
@of_suite("--backend", metavar="NAME", help="Only this backend.")
@of_suite("--branch", metavar="NAME", help="Only this branch.")
@of_suite("--dynamic", type=Choice(("yes", "no")), help="Only dynamic shapes, or only static ones.")
@of_suite("--world-size", type=int, metavar="N", help="Only runs with this many ranks.")
@of_suite(
    "--definition",
    type=Choice(tuple(DEFINITIONS)),
    help="Formula of a suite's summary. Default: hud.",
)
@click.option(
    "--runs",
    type=Value(_read_count),
    metavar="N",
    help=f"Newest runs with pages. Default: {DEFAULT_RUNS}. For --site.",
)
@click.option(
    "--pages",
    type=Value(_read_count),
    metavar="N",
    help=f"Most pages to write. Default: {DEFAULT_PAGES}. For --site.",
)
def export(**options: Any) -> int:
    """Write one run's report, what changed between two sides, or a suite over a period.

    The file is written atomically and replaces an existing one.
    """
    arguments = SimpleNamespace(**options)
    if arguments.site is not None:
        return _export_site(arguments)
    if arguments.runs or arguments.pages:
        return fail("--runs and --pages are for --site")
    refusal = _find_option_conflict(arguments)
    if refusal is not None:
        return fail(refusal)
    with closing(open_store(arguments.db)) as store:
        return _export_run(store, arguments)


def _find_option_conflict(arguments: SimpleNamespace) -> str | None:
    if arguments.run is arguments.compare is arguments.suite is None:
        return "nothing to write; expected --run ID, --compare BASE NEW, --suite NAME or --site DIR"
    missing = [f"--{name}" for name in ("format", "output") if getattr(arguments, name) is None]
    if missing:
        return f"{' and '.join(missing)}: required, what to write and where"
    if arguments.table and arguments.format not in TABULAR:
        return f"--table is for {' and '.join(TABULAR)} alone; --format is {arguments.format}"
    if arguments.payloads and arguments.format != "html":
        return f"--payloads is for html alone; --format is {arguments.format}"
    if arguments.payloads and arguments.no_source:
        return (
            "--payloads and --no-source exclude each other: graphs and code have lines of the "
            "program inside"
        )
    return _refuse_bundle(arguments) or _refuse_folder(arguments) or _refuse_others(arguments)


def _refuse_bundle(arguments: SimpleNamespace) -> str | None:
    if arguments.format != BUNDLE:
        return None
    if arguments.run is None:
        return "a bundle is of runs: --run ID, or several with commas between"
    if arguments.output == "-":
        return "a bundle is a database, which stdout cannot take; give --output a file's name"
    if arguments.no_source:
        return (
            "a bundle has all that was recorded, source too, which is redacted for certain "
            "only before it is stored; "
            "record the run with --no-source or import its log with --redact-source, and "
            "export that"
        )
    return None


def _refuse_folder(arguments: SimpleNamespace) -> str | None:
    if arguments.format not in FOLDERS:
        return "--raw-timings is for upstream alone" if arguments.raw_timings else None
    if arguments.output == "-":
        return (
            f"{arguments.format} is a folder of files, which stdout cannot take; give --output "
            "a folder's name"
        )
    if arguments.no_source:
        return f"{arguments.format} has no line of source to leave out; call it without --no-source"
    return None


def _refuse_others(arguments: SimpleNamespace) -> str | None:
    given = [
        f"--{name.replace('_', '-')}"
        for name in _SUITE_OPTIONS
        if getattr(arguments, name) is not None
    ]
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
        given += [
            f"--{name.replace('_', '-')}"
            for name in ("payloads", "no_source")
            if getattr(arguments, name)
        ]
        known = () if arguments.compare else SUITE_TABLES
        if arguments.compare and arguments.table:
            given.append("--table")
        if given:
            return f"{given[0]} is not for {what}, which has none of it"
    if arguments.table and arguments.table not in known:
        return f"--table {arguments.table} is of another report; known here are {', '.join(known)}"
    return None


def _export_comparison(store: Store, arguments: SimpleNamespace) -> int:
    # Imported here because templates and charts are slow to load.
    from compileboard.app.comparison.compare import build_comparison
    from compileboard.app.reports.comparison_report import write_comparison

    try:
        screen = build_comparison(
            store,
            read_command_clock(),
            *arguments.compare,
            anyway=arguments.anyway,
            suite=arguments.suite,
        )
    except FilterError as error:
        return fail(f"--compare {error}")
    return write_output(
        arguments.output, write_comparison(screen, arguments.format, time.time_ns() // 1000)
    )


def _export_run(store: Store, arguments: SimpleNamespace) -> int:
    if arguments.compare:
        return _export_comparison(store, arguments)
    if arguments.run is None:
        return export_suite(store, arguments)
    if arguments.format == BUNDLE:
        return _export_bundle(store, arguments)
    # Imported here: templates and charts, which no other command needs.
    from compileboard.app.reports.formats import write_report

    run = find_run(store.board, store.engine, read_command_clock(), arguments.run)
    detail = get_run(store.board, run.id) if run else None
    if detail is None:
        known = "compileboard-collect list"
        return fail(f"there is no run {arguments.run!r} in this database; `{known}` lists the runs")
    reader = store.open_run(detail.run.id)
    if arguments.format in FOLDERS:
        return _export_folder(reader, detail.run.id, arguments)
    table, source = arguments.table or DEFAULT_TABLE, not arguments.no_source
    now_us, stale_after_s = (
        time.time_ns() // 1000,
        load_settings(os.environ, {"db": arguments.db}).stale_after_s,
    )
    more = {"stale_after_s": stale_after_s, "payloads": arguments.payloads}
    pieces = write_report(reader, detail, arguments.format, table, source, now_us, **more)
    return write_output(arguments.output, pieces)


def _export_bundle(store: Store, arguments: SimpleNamespace) -> int:
    run_ids, clock = [], read_command_clock()
    for name in arguments.run.split(","):
        run = find_run(store.board, store.engine, clock, name)
        if run is None:
            return fail(
                f"there is no run {name!r} in this database; `compileboard-collect list` lists "
                "the runs"
            )
        if clock.is_running(run.state, run.heartbeat_us):
            return fail(
                f"run {run.id} is still running; a bundle has whole runs, so export it when it "
                "has ended"
            )
        run_ids.append(run.id)
    try:
        write_bundle(store.board, run_ids, arguments.output)
    except OSError as error:
        return fail(describe_write_error(arguments.output, error))
    size_bytes = os.path.getsize(arguments.output)
    counted = format_plural(len(set(run_ids)), "run")
    sys.stderr.write(
        f"compileboard: {counted} written to {arguments.output}, {size_bytes / 1e6:.1f} MB\n"
    )
    return DONE


def _export_folder(reader: sqlite3.Connection, run_id: str, arguments: SimpleNamespace) -> int:
    from compileboard.app.benchmarks.run_queries import load_measured, load_task_breaks
    from compileboard.collectors.formats.writer import (
        is_written,
        render_files,
        write_files,
    )

    results = load_measured(reader, run_id)
    if not results:
        return fail(
            f"run {run_id} has no benchmark results; `compileboard-collect bench` records some"
        )
    if not any(is_written(result) for result in results):
        whys = sorted({result.reason or result.experiment for result in results})[:3]
        counted = format_plural(len(results), "result")
        return fail(
            f"upstream's files have no row for any of the {counted} of run {run_id} "
            f"({', '.join(whys)}): "
            "they hold what was measured or failed; nothing was written. `--format csv --table "
            "results` writes these"
        )
    breaks = load_task_breaks(reader, run_id)
    try:
        files = render_files(results, breaks, raw_timings=arguments.raw_timings)
        names = write_files(files, arguments.output)
    except OSError as error:
        return fail(describe_write_error(arguments.output, error))
    sys.stderr.write(
        f"compileboard: {format_plural(len(names), 'file')} written to {arguments.output}\n"
    )
    return 0


def export_suite(store: Store, arguments: SimpleNamespace) -> int:
    # Imported here because templates and charts are slow to load.
    from compileboard.app.benchmarks.suite import build_suite, read_period
    from compileboard.app.reports.suite_report import write_suite

    clock = read_command_clock()
    period = read_period(arguments.since, arguments.until, arguments.last, clock.now_us)
    try:
        selection = TrendFilter(
            suite=arguments.suite,
            **{name: getattr(arguments, name) for name in SET_OPTIONS},
            dynamic=None if arguments.dynamic is None else arguments.dynamic == "yes",
            world_size=arguments.world_size,
        )
        suite_period = build_suite(store, selection, period, clock, arguments.definition)
    except FilterError as error:
        return fail(f"--{error}")
    code = write_output(
        arguments.output,
        write_suite(
            suite_period, arguments.format, clock.now_us, arguments.table or SUITE_TABLES[0]
        ),
    )
    for note in () if code else suite_period.notes:
        sys.stderr.write(f"compileboard: {note}\n")
    return code


def _export_site(arguments: SimpleNamespace) -> int:
    given = [name for name, value in vars(arguments).items() if name not in _SITE_OPTIONS and value]
    if given:
        return fail(f"--{given[0].replace('_', '-')} is for a report; --site has none of it")
    if arguments.payloads and arguments.no_source:
        return fail(
            "--payloads and --no-source exclude each other: graphs and code have lines of the "
            "program inside"
        )
    # Imported here: pages, templates and charts, which no other command needs.
    from compileboard.app.site.folder import FolderError
    from compileboard.app.site.site_export import ExportOptions, export_site

    settings = load_settings(os.environ, {"db": arguments.db})
    options = ExportOptions(
        arguments.site,
        runs=arguments.runs or DEFAULT_RUNS,
        pages=arguments.pages or DEFAULT_PAGES,
        payloads=arguments.payloads,
        source=not arguments.no_source,
        now_us=time.time_ns() // 1000,
    )
    try:
        with closing(open_store(settings.db)) as store:
            written = export_site(
                store, settings, options, _print_progress if sys.stderr.isatty() else None
            )
    except FolderError as error:
        return fail(str(error))
    except OSError as error:
        return fail(
            f"cannot write {arguments.site}: {error.strerror or error}; what was there is as it was"
        )
    for line in written.describe(arguments.site):
        sys.stderr.write(f"compileboard: {line}\n")
    return FAILED if written.failed else DONE


def _print_progress(text: str) -> None:
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()
