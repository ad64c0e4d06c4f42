"""`compileboard report`: the last days of every suite as dated files in a folder, for cron."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from compileboard.app.benchmarks.trend_queries import (
    ModelSet,
    TrendFilter,
    list_sets,
    list_summaries,
)
from compileboard.app.cli.common import db_option, read_command_clock
from compileboard.app.core.format import format_plural
from compileboard.app.core.page import FilterError
from compileboard.app.core.store import Store, open_store
from compileboard.app.reports import FORMATS, SUITE_TABLES
from compileboard.app.reports.output import describe_write_error, fail, write_file
from compileboard.collectors.store.rollups import DEFINITIONS
from compileboard.command_line import Choice, Command
from compileboard.exit_codes import DONE, EMPTY, FAILED

if TYPE_CHECKING:
    from compileboard.app.benchmarks.suite import Period

DEFAULT_LAST = "7d"
EPILOG = """\
A report covers whole days in UTC: --last 7d ends with yesterday. \
Each suite and configuration (mode, dtype, GPU, …)
has its own file:

  {suite}-{first day}-{last day}.html, with several configurations {suite}-{configuration}-…

A file appears whole or not at all, also where two commands run at once; \
one of that name is replaced. Each file's
name is printed with its number of runs and bytes.

Examples:
  %(prog)s --db /data/team.db --folder /srv/reports
  %(prog)s --db /data/team.db --folder /srv/reports --suite nightly --last 4w --format html \
--format parquet
  %(prog)s --folder reports --until 2026-10-31 --last 31d --verbose
  %(prog)s --folder reports --until today    today included

Exit codes: 0 every report is written, 1 one could not be written or a suite named does not exist, \
2 nothing was
written, 3 no suite has a run in these days.
"""


@click.command(cls=Command, epilog=EPILOG)
@click.option(
    "--folder", required=True, metavar="DIR", help="Folder to write into; created if missing."
)
@db_option
@click.option(
    "--suite", "suites", multiple=True, metavar="NAME", help="Only this suite; repeatable."
)
@click.option(
    "--last",
    default=DEFAULT_LAST,
    metavar="LENGTH",
    help="Length of the period, as 4w. Default: 7d.",
)
@click.option(
    "--until", metavar="DAY", help="Last day, as 2026-10-31, or today. Default: yesterday."
)
@click.option("--branch", metavar="NAME", help="Only runs of this branch.")
@click.option(
    "--definition",
    type=Choice(tuple(DEFINITIONS)),
    help="Formula of a suite's summary. Default: hud.",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=Choice(tuple(FORMATS)),
    help="Format to write; repeatable. Default: html.",
)
@click.option("--verbose", is_flag=True, help="Print also which suites have no run in these days.")
def report(db: str, last: str, **rest: Any) -> int:
    """Write a report of each suite's last days into a folder, with dated names."""
    arguments = SimpleNamespace(**rest)
    try:
        period = _read_days(last, arguments.until, time.time_ns() // 1000)
        if "parquet" in arguments.formats:
            from compileboard.app.reports.parquet import check_available

            check_available()
        with closing(open_store(db)) as store:
            return _write_all(store, arguments, period)
    except FilterError as error:
        return fail(f"--{error}")


def _read_days(last: str, until: str | None, now_us: int) -> Period:
    # Imported here because only this command needs it.
    from compileboard.app.benchmarks.suite import DAY_US, read_period

    period = read_period(None, until, last, now_us // DAY_US * DAY_US)
    if not period.is_days:
        raise FilterError(
            "last: reports are of whole days, as 7d or 4w; and --until is a day, as 2026-10-31"
        )
    return period


def _write_all(store: Store, arguments: SimpleNamespace, period: Period) -> int:
    try:
        os.makedirs(arguments.folder, exist_ok=True)
    except OSError as error:
        return fail(f"cannot make the folder {arguments.folder}: {error.strerror or error}")
    selection = TrendFilter(
        branch=arguments.branch, since_us=period.since_us, until_us=period.until_us
    )
    sets = list_sets(store.engine)
    known = list(dict.fromkeys(model_set.suite for model_set in sets))
    unknown = [suite for suite in arguments.suites if suite not in known]
    code = DONE
    for suite in unknown:
        known_words = ", ".join(repr(other_suite) for other_suite in known[:20]) or "none yet"
        code = fail(
            f"--suite: there is no suite {suite[:80]!r} in this database; known: {known_words}",
            FAILED,
        )
    chosen = [
        model_set
        for model_set in sets
        if not arguments.suites or model_set.suite in arguments.suites
    ]
    present = [
        model_set
        for model_set in chosen
        if list_summaries(store.engine, selection.narrow(model_set), "hud", 1)
    ]
    for model_set, name in zip(present, name_sets(present)):
        code = _write_one(store, arguments, period, model_set, name) or code
    if arguments.verbose:
        for suite in sorted(
            {model_set.suite for model_set in chosen} - {model_set.suite for model_set in present}
        ):
            sys.stdout.write(f"{suite!r}: no run from {period.text}\n")
    return code or (DONE if present else _fail_empty(arguments, period, chosen))


def _fail_empty(arguments: SimpleNamespace, period: Period, chosen: Sequence[ModelSet]) -> int:
    message = f"no suite has a run from {period.text} (UTC); nothing was written"
    if arguments.until is None and any(
        model_set.newest_us >= period.until_us for model_set in chosen
    ):
        message += ". A report ends with yesterday: --until today takes today's runs"
    return fail(message, EMPTY)


def _write_one(
    store: Store,
    arguments: SimpleNamespace,
    period: Period,
    model_set: ModelSet,
    name: str,
) -> int:
    from compileboard.app.benchmarks.suite import build_suite
    from compileboard.app.reports.suite_report import write_suite

    code, clock = DONE, read_command_clock()
    selected = TrendFilter(branch=arguments.branch).narrow(model_set)
    suite_period = build_suite(store, selected, period, clock, arguments.definition)
    for format in dict.fromkeys(arguments.formats or ("html",)):
        path = os.path.join(arguments.folder, f"{name}-{'-'.join(period.days)}.{format}")
        try:
            write_file(path, write_suite(suite_period, format, clock.now_us, SUITE_TABLES[0]))
        except OSError as error:
            code = fail(describe_write_error(path, error), FAILED)
            continue
        sys.stdout.write(
            f"{path}: {format_plural(suite_period.run_count, 'run')}, {os.path.getsize(path)} "
            "bytes\n"
        )
    return code


def name_sets(sets: Sequence[ModelSet]) -> list[str]:
    """Return a unique name for each suite; add the configuration if one suite has several."""
    from compileboard.app.reports.suite_report import name_part

    names: list[str] = []
    for model_set in sets:
        ways = [other.fields for other in sets if other.suite == model_set.suite]
        differing = [key for key in model_set.fields if len({str(way[key]) for way in ways}) > 1]
        name = "-".join(
            name_part(_format_message(key, model_set.fields[key])) for key in ("suite", *differing)
        )
        # Names may equal another suite's with its configuration, and some file systems ignore case.
        taken = name.lower() in (other_name.lower() for other_name in names)
        names.append(f"{name}-{name_part(repr(model_set.fields))[-6:]}" if taken else name)
    return names


def _format_message(name: str, value: Any) -> str:
    if name == "dynamic":
        return "dynamic" if value else "static"
    return f"{value}ranks" if name == "world_size" else str(value if value is not None else "none")
