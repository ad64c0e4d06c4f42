"""`compileboard export --site DIR`: the option, what it excludes, and what is said while it writes."""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import time
from contextlib import closing
from functools import partial
from typing import Any

from compileboard.app.reports.command import add_parser as add_reports
from compileboard.app.settings import load_settings
from compileboard.collectors.store.connect import open_reader
from compileboard.collectors.store.errors import StoreError, explain

DEFAULT_RUNS = 200
DEFAULT_PAGES = 10_000
# What --site takes; every other option of `export` belongs to a report.
_OURS = frozenset(("site", "runs", "pages", "db", "payloads", "no_source", "command", "function"))


def add_parser(commands: Any) -> None:
    """Describe `export` to the command line, the static site with it."""
    parser, what = add_reports(commands)
    what.add_argument("--site", metavar="DIR", help="Write the dashboard as static files into this folder.")
    parser.add_argument(
        "--runs", type=_count, metavar="N", help=f"Newest runs with pages. Default: {DEFAULT_RUNS}. For --site."
    )
    parser.add_argument(
        "--pages", type=_count, metavar="N", help=f"Most pages to write. Default: {DEFAULT_PAGES}. For --site."
    )
    parser.set_defaults(function=partial(_choose, parser, parser.get_default("function")))


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1_000_000):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000000")
    return int(text)


def _choose(parser: argparse.ArgumentParser, export_report: Any, arguments: argparse.Namespace) -> int:
    if arguments.site is not None:
        return _export(parser, arguments)
    if arguments.runs or arguments.pages:
        return _fail("--runs and --pages are for --site", 2)
    return int(export_report(arguments))


def _export(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    given = [name for name, value in vars(arguments).items() if name not in _OURS and value != parser.get_default(name)]
    if given:
        return _fail(f"--{given[0].replace('_', '-')} is for a report; --site has none of it", 2)
    if arguments.payloads and arguments.no_source:
        return _fail(
            "--payloads and --no-source exclude each other: graphs and code have lines of the program inside", 2
        )
    # Imported here: pages, templates and charts, which no other command needs.
    from compileboard.app.site.export import Wishes, export_site
    from compileboard.app.site.folder import FolderError

    settings = load_settings(os.environ, {"db": arguments.db})
    wishes = Wishes(
        arguments.site,
        runs=arguments.runs or DEFAULT_RUNS,
        pages=arguments.pages or DEFAULT_PAGES,
        payloads=arguments.payloads,
        source=not arguments.no_source,
        now_us=time.time_ns() // 1000,
    )
    try:
        with closing(open_reader(settings.db)) as reader:
            written = export_site(reader, settings, wishes, _say if sys.stderr.isatty() else None)
    except FolderError as error:
        return _fail(str(error))
    except StoreError as error:
        return _fail(str(error), 2)
    except sqlite3.Error as error:
        return _fail(str(explain(error, settings.db)), 2)
    except OSError as error:
        return _fail(f"cannot write {arguments.site}: {error.strerror or error}; what was there is as it was")
    for line in written.describe(arguments.site):
        sys.stderr.write(f"compileboard: {line}\n")
    return 1 if written.failed else 0


def _say(text: str) -> None:
    """Show how far it is, on one line that the next one replaces."""
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()


def _fail(message: str, code: int = 1) -> int:
    sys.stderr.write(f"compileboard: {message}\n")
    return code
