"""`compileboard report`: every suite's last days as dated files in a folder, fit for cron."""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from compileboard.app.format import format_plural
from compileboard.app.queries.fleet.trends import ModelSet, TrendFilter, list_sets, list_summaries
from compileboard.app.queries.page import FilterError
from compileboard.app.reports import FORMATS, SUITE_TABLES
from compileboard.app.reports.output import fail, write_file
from compileboard.app.settings import load_settings
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.errors import StoreError, explain
from compileboard.collectors.store.rollups.summaries import DEFINITIONS

if TYPE_CHECKING:
    from compileboard.app.analysis.suite.period import Period

DEFAULT_LAST = "7d"
EPILOG = """\
A report is of whole days in UTC: --last 7d ends with yesterday. Each suite, and each way in which it was measured
(mode, dtype, GPU, …), has its own file:

  {suite}-{first day}-{last day}.html, where there are several ways {suite}-{what tells them apart}-…

A file appears whole or not at all, also where two commands run at once; one of that name is replaced. Nothing is
printed when all is well.

examples:
  %(prog)s --db /data/team.db --folder /srv/reports
  %(prog)s --db /data/team.db --folder /srv/reports --suite nightly --last 4w --format html --format parquet
  %(prog)s --folder reports --until 2026-10-31 --last 31d --verbose
  %(prog)s --folder reports --until today    with what was measured today

Exit codes: 0 every report is written, 1 one could not be written or a suite named does not exist, 2 the database cannot
be used or a bad option, 3 no suite has a run in these days.
"""


def add_parser(commands: Any) -> None:
    """Describe `report` to the command line."""
    parser = commands.add_parser(
        "report",
        help="write every suite's last days to a folder, for cron",
        description="Write a report of each suite's last days into a folder, with dated names.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", required=True, metavar="DIR", help="Where to write; it is made if it is not there.")
    parser.add_argument("--db", metavar="FILE", help="The database file. Default: compileboard.db.")
    parser.add_argument("--suite", action="append", metavar="NAME", help="Only this suite; may be given several times.")
    parser.add_argument("--last", default=DEFAULT_LAST, metavar="LENGTH", help="How long: 7d (the default), 4w.")
    parser.add_argument("--until", metavar="DAY", help="The last day, as 2026-10-31, or today. Default: yesterday.")
    parser.add_argument("--branch", metavar="NAME", help="Only runs of this branch.")
    parser.add_argument("--definition", choices=tuple(DEFINITIONS), help="How a suite is summed up. Default: hud.")
    parser.add_argument(
        "--format",
        action="append",
        choices=tuple(FORMATS),
        help="What to write, html by default; several are possible.",
    )
    parser.add_argument("--verbose", action="store_true", help="Say which files were written.")
    parser.set_defaults(function=report)


def report(arguments: argparse.Namespace) -> int:
    """Write the reports; return the exit code."""
    path = load_settings(os.environ, {"db": arguments.db}).db
    try:
        period = _read_days(arguments, time.time_ns() // 1000)
        if "parquet" in (arguments.format or ()):
            from compileboard.app.reports.parquet import check_available

            check_available()
        with closing(open_reader(path)) as reader:
            return _write_all(reader, arguments, period)
    except FilterError as error:
        return fail(f"--{error}", 2)
    except StoreError as error:
        return fail(str(error), 2)
    except sqlite3.Error as error:
        return fail(str(explain(error, path)), 2)


def _read_days(arguments: argparse.Namespace, now_us: int) -> Period:
    """Read a period of whole days: a command that runs again that day writes the same files."""
    # Imported here, as all that only this command needs.
    from compileboard.app.analysis.suite.period import DAY_US, read_period

    period = read_period(None, arguments.until, arguments.last, now_us // DAY_US * DAY_US)
    if not period.is_days:
        raise FilterError("last: reports are of whole days, as 7d or 4w; and --until is a day, as 2026-10-31")
    return period


def _write_all(reader: sqlite3.Connection, arguments: argparse.Namespace, period: Period) -> int:
    try:
        os.makedirs(arguments.folder, exist_ok=True)
    except OSError as error:
        return fail(f"cannot make the folder {arguments.folder}: {error.strerror or error}")
    wanted = TrendFilter(branch=arguments.branch, since_us=period.since_us, until_us=period.until_us)
    sets = list_sets(reader)
    known = list(dict.fromkeys(it.suite for it in sets))
    unknown = [it for it in arguments.suite or () if it not in known]
    code = 0
    for suite in unknown:
        known_words = ", ".join(repr(it) for it in known[:20]) or "none yet"
        code = fail(f"--suite: there is no suite {suite[:80]!r} in this database; known: {known_words}")
    chosen = [it for it in sets if not arguments.suite or it.suite in arguments.suite]
    present = [it for it in chosen if list_summaries(reader, wanted.narrow(it), "hud", 1)]
    for one, name in zip(present, name_sets(present)):
        code = _write_one(reader, arguments, period, one, name) or code
    if arguments.verbose:
        for suite in sorted({it.suite for it in chosen} - {it.suite for it in present}):
            sys.stdout.write(f"{suite!r}: no run from {period.text}\n")
    return code or (0 if present else _fail_empty(arguments, period, chosen))


def _fail_empty(arguments: argparse.Namespace, period: Period, chosen: Sequence[ModelSet]) -> int:
    """Say that there is nothing to write, and where the runs are if that is today."""
    said = f"no suite has a run from {period.text} (UTC); nothing was written"
    if arguments.until is None and any(it.newest_us >= period.until_us for it in chosen):
        said += ". A report ends with yesterday: --until today takes today's runs"
    return fail(said, 3)


def _write_one(
    reader: sqlite3.Connection, arguments: argparse.Namespace, period: Period, one: ModelSet, name: str
) -> int:
    from compileboard.app.analysis.suite.period import read_suite_period
    from compileboard.app.reports.suite import write_suite

    code = 0
    found = read_suite_period(reader, TrendFilter(branch=arguments.branch).narrow(one), period, arguments.definition)
    for format in dict.fromkeys(arguments.format or ("html",)):
        path = os.path.join(arguments.folder, f"{name}-{'-'.join(period.days)}.{format}")
        try:
            write_file(path, write_suite(found, format, time.time_ns() // 1000, SUITE_TABLES[0]))
        except OSError as error:
            code = fail(f"cannot write {path}: {error.strerror or error}")
            continue
        if arguments.verbose:
            sys.stdout.write(f"{path}: {format_plural(found.run_count, 'run')}, {os.path.getsize(path)} bytes\n")
    return code


def name_sets(sets: Sequence[ModelSet]) -> list[str]:
    """Name what suites were measured as: the suite alone, or with what tells several ways of one apart; each once."""
    from compileboard.app.reports.suite import name_part

    names: list[str] = []
    for one in sets:
        ways = [it.fields for it in sets if it.suite == one.suite]
        differing = [key for key in one.fields if len({str(it[key]) for it in ways}) > 1]
        name = "-".join(name_part(_format_message(key, one.fields[key])) for key in ("suite", *differing))
        # A suite may be called as another one's way is, and some file systems take A for a.
        taken = name.lower() in (it.lower() for it in names)
        names.append(f"{name}-{name_part(repr(one.fields))[-6:]}" if taken else name)
    return names


def _format_message(name: str, value: Any) -> str:
    if name == "dynamic":
        return "dynamic" if value else "static"
    return f"{value}ranks" if name == "world_size" else str(value if value is not None else "none")
