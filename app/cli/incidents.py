"""`compileboard findings`: look for what changed, list it, and say what is done about it."""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

from compileboard.app.checks.formats import one_line
from compileboard.app.format import format_plural, format_time
from compileboard.app.queries.fleet.incidents import (
    HANDLINGS,
    STATES,
    IncidentFilter,
    SeriesChange,
    get_finding,
    list_finding_words,
    list_findings,
)
from compileboard.app.settings import load_settings
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.dashboard.audit import command_origin, record_action
from compileboard.collectors.store.dashboard.series_changes import ACTIONS, save_comment
from compileboard.collectors.store.errors import StoreError, explain

EPILOG = """\
examples:
  %(prog)s update                       look at what is new; the dashboard does so by itself while it serves
  %(prog)s list                         what got worse and nobody has taken up
  %(prog)s list --all --suite nightly
  %(prog)s show gx3k2m7yqz4ab6tn
  %(prog)s acknowledge gx3k2m7yqz4ab6tn --who Ada --text "fix in #812"
  %(prog)s ignore gx3k2m7yqz4ab6tn --who Ada --text "the machine was moved"

Exit codes: 0 done, 1 there is no such finding or a word is missing, 2 the database cannot be used or a bad option.
"""
_ACTION_HELP = {
    "acknowledge": "Say that somebody has taken it up.",
    "ignore": "Say that nothing needs to be done, and why.",
    "note": "Say something of it.",
    "reopen": "Take an acknowledgement back, or stop ignoring it.",
}


def add_parser(commands: Any) -> None:
    """Describe `findings` to the command line."""
    parser = commands.add_parser(
        "findings",
        help="look for what got slower, broke or recompiles more, and say what is done about it",
        description="Find lasting changes in every series: steps, slow drift, and series that stopped.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", help="What to do.")
    update = _add(actions, "update", _update, "Bring the findings up to date with the runs.")
    update.add_argument("--everything", action="store_true", help="Look at all series again, not at new runs alone.")
    listing = _add(actions, "list", _list, "List findings, those of the newest runs first.")
    listing.add_argument("--suite", help="Of this suite alone.")
    listing.add_argument("--model", help="Of this model alone.")
    listing.add_argument("--state", choices=STATES, help="Of this state alone.")
    listing.add_argument("--handling", choices=HANDLINGS, help="Only what is open, acknowledged or ignored.")
    listing.add_argument("--all", action="store_true", help="Improvements too, and what is taken up or withdrawn.")
    listing.add_argument("--limit", type=int, default=50, metavar="N", help="At most so many. Default: 50.")
    show = _add(actions, "show", _show, "Show one finding with what may have caused it.")
    show.add_argument("id", metavar="ID", help="The finding's id.")
    for action in ACTIONS:
        said = _add(actions, action, _add_comment, _ACTION_HELP[action])
        said.add_argument("id", metavar="ID", help="The finding's id.")
        said.add_argument("--who", required=True, metavar="NAME", help="Who says so.")
        said.add_argument("--text", metavar="TEXT", help="What there is to say; ignore and note need it.")
        said.add_argument("--range", action="store_true", help="The same for all that came between the same two runs.")


def _add(actions: Any, name: str, work: Callable[..., int], said: str) -> argparse.ArgumentParser:
    action: argparse.ArgumentParser = actions.add_parser(name, help=said, description=said)
    action.add_argument("--db", metavar="FILE", help="The database file. Default: compileboard.db.")
    action.set_defaults(function=_run, work=work)
    return action


def _run(arguments: argparse.Namespace) -> int:
    path = load_settings(os.environ, {"db": arguments.db}).db
    try:
        return int(arguments.work(path, arguments))
    except StoreError as error:
        return _fail(str(error), 2)
    except sqlite3.Error as error:
        return _fail(str(explain(error, path)), 2)


def _update(path: str, arguments: argparse.Namespace) -> int:
    from compileboard.app.incidents.update import update_findings

    done = update_findings(path, everything=arguments.everything)
    _print_line(
        f"{format_plural(done.run_count, 'run')} looked at, {format_plural(done.line_count, 'series', 'series')}: "
        f"{format_plural(len(done.new_ids), 'new finding')}, {done.changed_count} changed, {done.gone_count} gone"
    )
    return 0


def _list(path: str, arguments: argparse.Namespace) -> int:
    from compileboard.app.analysis.incidents.messages import describe_finding, describe_series

    if not 1 <= arguments.limit <= 10_000:
        return _fail(f"--limit is {arguments.limit}; expected 1 to 10000", 2)
    is_plain = not (arguments.all or arguments.state or arguments.handling)
    wanted = IncidentFilter(
        suite=arguments.suite,
        model=arguments.model,
        state=arguments.state,
        handling=arguments.handling or (None if arguments.all else "open"),
        direction="worse" if is_plain else None,
    )
    with closing(open_reader(path)) as reader:
        page = list_findings(reader, wanted, limit=arguments.limit)
    for it in page.rows:
        if arguments.all or arguments.state or it.state != "withdrawn":
            _print_line(f"{it.id}  {format_time(it.first_us)[:10]}  {_name_state(it):<10} {describe_finding(it)}")
            sys.stdout.write(f"{'':18}{one_line(describe_series(it))}\n")
    if not page.rows:
        _print_line("nothing got worse that nobody has taken up; --all lists all" if is_plain else "nothing found")
    elif page.next:
        _print_line(f"these are the newest {arguments.limit}; --limit lists more")
    return 0


def _name_state(it: SeriesChange) -> str:
    return "recovered" if it.recovered_run_id and it.state == "confirmed" else it.state


def _show(path: str, arguments: argparse.Namespace) -> int:
    from compileboard.app.analysis.incidents.messages import (
        describe_cause,
        describe_commit_range,
        describe_finding,
        describe_series,
        describe_state,
        format_confidence,
    )

    with closing(open_reader(path)) as reader:
        it, said = get_finding(reader, arguments.id), list_finding_words(reader, arguments.id)
    if it is None:
        return _no_such(arguments.id)
    for line in (
        describe_finding(it),
        describe_series(it),
        describe_commit_range(it),
        f"{it.state}: {describe_state(it)}; {it.handling}; {format_confidence(it)}",
        *(f"environment: {one['word']} {one['before']} → {one['now']}" for one in it.evidence["environment"]),
        *(f"commit: {one['hash'][:10]} {one['author']}: {one['subject']}" for one in it.evidence["commits"]["listed"]),
        *(f"suspected cause: {describe_cause(one)}" for one in it.evidence["causes"]),
        *(
            f"{format_time(one.time_us)[:16]} {one.who}: {one.action}{f': {one.text}' if one.text else ''}"
            for one in said
        ),
    ):
        _print_line(line)
    return 0


def _add_comment(path: str, arguments: argparse.Namespace) -> int:
    with closing(open_writer(path)) as writer:
        try:
            said = {"who": arguments.who, "text": arguments.text, "whole_range": arguments.range}
            found = save_comment(writer, arguments.id, arguments.action, **said)
            if found:
                detail = f"by {arguments.who}"
                record_action(writer, f"finding.{arguments.action}", arguments.id, command_origin(), detail=detail)
        except ValueError as error:
            return _fail(f"--{error}")
    return 0 if found else _no_such(arguments.id)


def _no_such(finding_id: str) -> int:
    return _fail(f"there is no finding {finding_id[:80]!r}; `compileboard findings list --all` lists them")


def _print_line(text: str) -> None:
    sys.stdout.write(one_line(text) + "\n")


def _fail(message: str, code: int = 1) -> int:
    sys.stderr.write(f"compileboard: {message}\n")
    return code
