"""What `export --suite` adds: the period, what the suite was measured as, and the report."""

from __future__ import annotations

import argparse
import sqlite3
import sys
import time

from compileboard.app.queries.page import FilterError
from compileboard.app.queries.trends import TrendFilter
from compileboard.app.reports import SUITE_TABLES
from compileboard.app.reports.output import fail, write_output
from compileboard.collectors.store.summaries import DEFINITIONS

SET_OPTIONS = ("mode", "dtype", "device", "hardware", "backend", "branch")
_OPTIONS = ("since", "until", "last", *SET_OPTIONS, "dynamic", "world_size", "definition")


def add_suite_options(parser: argparse.ArgumentParser) -> None:
    """Describe what chooses a suite's period and what it was measured as."""
    group = parser.add_argument_group("a suite over a period (--suite)")
    group.add_argument("--since", metavar="WHEN", help="Where it begins: 2026-10-01 (UTC), or how long ago, as 30d.")
    group.add_argument("--until", metavar="WHEN", help="Where it ends; a day is in it. Default: now.")
    group.add_argument("--last", metavar="LENGTH", help="How long it is: 36h, 30d, 12w. Default: 30d.")
    for name in SET_OPTIONS:
        group.add_argument(f"--{name}", metavar="NAME", help=f"Only what has this {name}.")
    group.add_argument("--dynamic", choices=("yes", "no"), help="Only dynamic shapes, or only static ones.")
    group.add_argument("--world-size", type=int, metavar="N", help="Only runs of so many ranks.")
    group.add_argument("--definition", choices=tuple(DEFINITIONS), help="How a suite is summed up. Default: hud.")


def list_given(arguments: argparse.Namespace) -> list[str]:
    """List the options of a suite's report that were given."""
    return [f"--{name.replace('_', '-')}" for name in _OPTIONS if getattr(arguments, name) is not None]


def read_wanted(arguments: argparse.Namespace) -> TrendFilter:
    """Make a filter of what was given."""
    return TrendFilter(
        suite=arguments.suite,
        **{name: getattr(arguments, name) for name in SET_OPTIONS},
        dynamic=None if arguments.dynamic is None else arguments.dynamic == "yes",
        world_size=arguments.world_size,
    )


def export_suite(reader: sqlite3.Connection, arguments: argparse.Namespace) -> int:
    """Write a suite over a period; return the exit code."""
    # Imported here, as templates and charts are.
    from compileboard.app.analysis.period import read_period
    from compileboard.app.analysis.suite_period import read_suite_period
    from compileboard.app.reports.suite import write_suite

    now_us = time.time_ns() // 1000
    period = read_period(arguments.since, arguments.until, arguments.last, now_us)
    try:
        found = read_suite_period(reader, read_wanted(arguments), period, arguments.definition)
    except FilterError as error:
        return fail(f"--{error}")
    code = write_output(
        arguments.output, write_suite(found, arguments.format, now_us, arguments.table or SUITE_TABLES[0])
    )
    for note in () if code else found.notes:
        sys.stderr.write(f"compileboard: {note}\n")
    return code
