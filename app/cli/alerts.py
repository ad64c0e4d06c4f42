"""`compileboard alerts`: check a file of rules, send what is due, list what was sent."""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from compileboard.app.alerts.delivery import SendReport, preview, send_due, send_message
from compileboard.app.alerts.labels import (
    describe_channel,
    describe_filters,
    describe_start,
    describe_when,
    list_unmatched_patterns,
)
from compileboard.app.alerts.message import clean, make_message, make_test_message
from compileboard.app.alerts.rules import AlertRule, Rules, RulesError
from compileboard.app.alerts.rules_file import EXAMPLE, load_rules
from compileboard.app.alerts.transport import DeliveryFailed, DeliveryUnknown
from compileboard.app.format import format_plural, format_time
from compileboard.app.queries.fleet.alerts import STATES, list_deliveries, list_rule_names
from compileboard.app.settings import load_settings
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.errors import StoreError, explain

EPILOG = """\
examples:
  %(prog)s example > alerts.toml
  %(prog)s check --rules alerts.toml          what is wrong with it, and what each rule would send now
  %(prog)s test slower                        send a message that says that it is a test
  %(prog)s send                               fit for cron, as */5 * * * *
  %(prog)s send --dry-run                     what it would send
  %(prog)s list --state failed

The rules are the file that --rules or COMPILEBOARD_ALERTS names. `serve` sends what is due by itself where it has them.
Exit codes: 0 done; 1 something was not sent, or check: a variable is not set; 2 the rules or the database cannot be
used.
"""
DONE, NOT_DONE, UNUSABLE = 0, 1, 2
MOST_LISTED = 10_000
Answer = tuple[list[str], int]


def add_parser(commands: Any) -> None:
    """Describe `alerts` to the command line."""
    parser = commands.add_parser(
        "alerts",
        help="tell people of findings, by rules",
        description="Send confirmed findings to webhooks, Slack or e-mail, each of them once, by the rules of a file.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", help="What to do.")
    for name, function, said in (
        ("check", check, "Check the rules, and show what each would send now."),
        ("send", send, "Send what is due."),
        ("list", list_all, "List what was sent, what waits and what failed."),
        ("test", test, "Send a message that says that it is a test to a rule's channels."),
        ("example", example, "Print a file of rules to begin with."),
    ):
        action = actions.add_parser(name, help=said, description=said)
        if name != "example":
            action.add_argument("--db", metavar="FILE", help="The database file. Default: compileboard.db.")
        if name != "example":
            action.add_argument("--rules", metavar="FILE", help="The file of rules. Default: COMPILEBOARD_ALERTS.")
        if name == "send":
            action.add_argument("--dry-run", action="store_true", help="Show what would be sent; send nothing.")
        if name == "list":
            action.add_argument("--state", choices=STATES, help="Only deliveries in this state.")
            action.add_argument("--rule", metavar="NAME", help="Only deliveries of this rule.")
            action.add_argument("--limit", type=int, default=100, metavar="N", help="At most so many. Default: 100.")
        if name == "test":
            action.add_argument("name", metavar="RULE", help="The rule's name.")
        action.set_defaults(function=_run, work=function)


def _run(arguments: argparse.Namespace) -> int:
    work: Callable[[argparse.Namespace], Answer] = arguments.work
    try:
        lines, code = work(arguments)
    except RulesError as error:
        return _fail(*error.mistakes)
    except StoreError as error:
        return _fail(str(error))
    except sqlite3.Error as error:
        return _fail(str(explain(error, load_settings(os.environ, {"db": arguments.db}).db)))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return code


def check(arguments: argparse.Namespace) -> Answer:
    """Describe the rules and what each would send."""
    rules, now_us = _load(arguments), _now()
    lines = [f"{rules.path}: {format_plural(len(rules.rules), 'rule')}, no mistake"]
    if not rules.base_url:
        lines.append("no base_url: messages have no links to the dashboard")
    lines += [f"channel {name}: {describe_channel(it, os.environ)}" for name, it in rules.channels.items()]
    unset = {name: said for name, it in rules.channels.items() if (said := it.describe_unset(os.environ))}
    lines += [f"channel {name}: {said} here" for name, said in unset.items()]
    with closing(open_reader(_find_db(arguments))) as reader:
        for rule in rules.rules:
            lines += ["", f"rule {rule.name}: {describe_filters(rule)}", f"  {describe_when(rule)}"]
            lines += [f"  {describe_start(reader, rule)}", *_preview(reader, rules, rule, now_us)]
            lines += [f"  note: {it}" for it in list_unmatched_patterns(reader, rule)]
    return lines, NOT_DONE if unset else DONE


def send(arguments: argparse.Namespace) -> Answer:
    """Send what is due, or show it."""
    if arguments.dry_run:
        rules, now_us = _load(arguments), _now()
        with closing(open_reader(_find_db(arguments))) as reader:
            return [it for rule in rules.rules for it in _preview(reader, rules, rule, now_us)], DONE
    report = send_due(_find_db(arguments), _find_rules(arguments), os.environ, _now())
    for problem in report.problems:
        sys.stderr.write(f"compileboard: {problem}\n")
    return describe_report(report), NOT_DONE if report.problems else DONE


def list_all(arguments: argparse.Namespace) -> Answer:
    """List deliveries, the newest first."""
    if not 1 <= arguments.limit <= MOST_LISTED:
        raise RulesError([f"--limit is {arguments.limit}; expected 1 to {MOST_LISTED}"])
    with closing(open_reader(_find_db(arguments))) as reader:
        if arguments.rule is not None:
            _check_rule(reader, arguments)
        found = list_deliveries(reader, arguments.state, arguments.rule, limit=arguments.limit)
    lines = [
        clean(f"{format_time(it.changed_us)} {it.state} {it.rule} → {it.channel} {it.finding_id} {it.error or ''}")
        for it in found.rows
    ]
    if found.next:
        lines.append(f"these are the newest {arguments.limit}; --limit lists more")
    return lines or [_format_nothing(arguments)], DONE


def _check_rule(reader: sqlite3.Connection, arguments: argparse.Namespace) -> None:
    """Refuse a rule that never ran and is not in the file of rules, where there is one."""
    known = list_rule_names(reader)
    if arguments.rule in known:
        return
    if load_settings(os.environ, {"alerts": arguments.rules}).alerts:
        known = list(dict.fromkeys([*(it.name for it in _load(arguments).rules), *known]))
    if arguments.rule not in known:
        expected = f"expected one of {', '.join(known)}" if known else "no rule ever ran here"
        raise RulesError([f"there is no rule {arguments.rule[:80]!r}; {expected}"])


def _format_nothing(arguments: argparse.Namespace) -> str:
    of = f" of rule {arguments.rule}" if arguments.rule else ""
    return f"nothing{of} is {arguments.state}" if arguments.state else f"nothing{of} was sent, and nothing waits"


def test(arguments: argparse.Namespace) -> Answer:
    """Send a test to every channel of a rule; nothing is kept of it."""
    rules, now_us = _load(arguments), _now()
    rule = next((it for it in rules.rules if it.name == arguments.name), None)
    if rule is None:
        known = ", ".join(it.name for it in rules.rules)
        raise RulesError([f"{rules.path}: there is no rule {arguments.name[:80]!r}; expected one of {known}"])
    lines, code = [], DONE
    for channel in (rules.channels[name] for name in rule.channels):
        try:
            unset = channel.describe_unset(os.environ)
            if unset:
                raise DeliveryFailed(unset)
            said = send_message(
                lambda: make_test_message(rule.name, rules.base_url, now_us), channel, rules.base_url, os.environ
            )
            lines.append(f"{channel.name}: sent{f', {said}' if said else ''}")
        except (DeliveryFailed, DeliveryUnknown) as problem:
            lines.append(
                f"{channel.name}: {'not sent' if isinstance(problem, DeliveryFailed) else 'unknown'}: {problem}"
            )
            code = NOT_DONE
    return lines, code


def example(_arguments: argparse.Namespace) -> Answer:
    """Print an example."""
    return EXAMPLE.splitlines(), DONE


def describe_report(report: SendReport) -> list[str]:
    """Say what a pass did."""
    counts = (
        ("sent", report.sent_count),
        ("to be tried again", report.retried_count),
        ("failed", report.failed_count),
        ("unknown", report.unknown_count),
    )
    said = ", ".join(f"{count} {word}" for word, count in counts if count) or "nothing was due"
    waiting = f"; {format_plural(report.waiting_count, 'finding')} wait" if report.waiting_count else ""
    return [*report.notes, f"messages: {said}{waiting}"]


def _preview(reader: sqlite3.Connection, rules: Rules, rule: AlertRule, now_us: int) -> Iterator[str]:
    for channel, findings, is_due in preview(reader, rule, now_us):
        if not findings:
            if is_due:
                yield f"  {rule.name} → {channel}, now: nothing"
            continue
        message = make_message("", rule.name, findings, rules.base_url, now_us)
        yield f"  {rule.name} → {channel}, {'now' if is_due else 'later'}: {message.title}"
        for part in message.parts:
            yield from (f"    {it.text}" for it in part.lines)


def _load(arguments: argparse.Namespace) -> Rules:
    return load_rules(_find_rules(arguments))


def _find_rules(arguments: argparse.Namespace) -> str:
    path = load_settings(os.environ, {"alerts": arguments.rules}).alerts
    if not path:
        raise RulesError(
            ["no rules: give --rules FILE or COMPILEBOARD_ALERTS; `alerts example` prints one to begin with"]
        )
    return path


def _find_db(arguments: argparse.Namespace) -> str:
    return load_settings(os.environ, {"db": arguments.db}).db


def _now() -> int:
    return time.time_ns() // 1000


def _fail(*sentences: str) -> int:
    sys.stderr.writelines(f"compileboard: {it}\n" for it in sentences)
    return UNUSABLE
