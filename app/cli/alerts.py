"""`compileboard alerts`: check a file of rules, send due alerts, list sent ones."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import wraps
from typing import Any

import click

from compileboard.app.alerts.alert_delivery import SendReport, preview, send_due
from compileboard.app.alerts.channels import DeliveryFailed, DeliveryUnknown, send_message
from compileboard.app.alerts.message import (
    clean,
    list_unmatched_patterns,
    make_message,
    make_test_message,
)
from compileboard.app.alerts.pages import list_channel_statuses, list_rule_statuses
from compileboard.app.alerts.queries import STATES, list_deliveries, list_rule_names
from compileboard.app.alerts.rules import EXAMPLE, AlertRule, AlertRules, RulesError, load_rules
from compileboard.app.cli.common import board_option, db_option
from compileboard.app.core.format import format_plural, format_time
from compileboard.app.core.settings import load_settings
from compileboard.app.core.store import open_store
from compileboard.collectors.store.connection import open_reader
from compileboard.command_line import Choice, Group
from compileboard.exit_codes import DONE, FAILED, REFUSED

EPILOG = """\
Examples:
  %(prog)s example > alerts.toml
  %(prog)s check --rules alerts.toml          what is wrong with it, \
and what each rule would send now
  %(prog)s test slower                        send a test message
  %(prog)s send                               fit for cron, as */5 * * * *
  %(prog)s send --dry-run                     what it would send
  %(prog)s list --state failed

The rules are the file that --rules or COMPILEBOARD_ALERTS names. \
`serve` sends what is due by itself where it has them.
Exit codes: 0 done; 1 something was not sent, or check: a variable is not set; \
2 the rules or the database cannot be
used.
"""
MAX_LISTED = 10_000
Answer = tuple[list[str], int]


@click.group(cls=Group, epilog=EPILOG)
def alerts() -> None:
    """Send incidents through channels when they open and when they recover, by the rules of
    a file.
    """


def alerts_action(function: Callable[..., Answer]) -> click.Command:
    @wraps(function)
    def run(**options: Any) -> int:
        try:
            lines, code = function(**options)
        except RulesError as error:
            sys.stderr.writelines(f"compileboard: {mistake}\n" for mistake in error.mistakes)
            return REFUSED
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return code

    return alerts.command(function.__name__.removesuffix("_all"))(run)


def _find_rules(ctx: click.Context, param: click.Parameter, path: str | None) -> str:
    return load_settings(os.environ, {"alerts": path}).alerts


rules_option = click.option(
    "--rules",
    "rules_path",
    metavar="FILE",
    callback=_find_rules,
    help="File of rules. Default: COMPILEBOARD_ALERTS.",
)


@alerts_action
@db_option
@rules_option
def check(db: str, rules_path: str) -> Answer:
    """Check the rules, and show what each of them would send now."""
    rules, now_us = _load_rules(rules_path), _read_now_us()
    lines = [f"{rules.path}: {format_plural(len(rules.rules), 'rule')}, valid"]
    if not rules.base_url:
        lines.append("no base_url: messages have no links to the dashboard")
    lines += [
        f"channel {status.channel.name}: {status.where}"
        for status in list_channel_statuses(rules, os.environ)
    ]
    unset = {
        name: problem
        for name, channel in rules.channels.items()
        if (problem := channel.describe_unset(os.environ))
    }
    lines += [f"channel {name}: {problem} here" for name, problem in unset.items()]
    with closing(open_store(db)) as store:
        reader = store.board
        for status in list_rule_statuses(reader, rules, now_us):
            lines += ["", f"rule {status.rule.name}: {status.filters}", f"  {status.when}"]
            lines += [f"  {status.start}", *_format_preview(reader, rules, status.rule, now_us)]
            lines += [
                f"  note: {note}" for note in list_unmatched_patterns(store.engine, status.rule)
            ]
    return lines, FAILED if unset else DONE


@alerts_action
@board_option
@rules_option
@click.option("--dry-run", is_flag=True, help="Show what would be sent; send nothing.")
def send(db: str, rules_path: str, dry_run: bool) -> Answer:
    """Send due alerts."""
    if dry_run:
        rules, now_us = _load_rules(rules_path), _read_now_us()
        with closing(open_reader(db)) as reader:
            return [
                line
                for rule in rules.rules
                for line in _format_preview(reader, rules, rule, now_us)
            ], DONE
    report = send_due(db, _require_rules(rules_path), os.environ, _read_now_us())
    for problem in report.problems:
        sys.stderr.write(f"compileboard: {problem}\n")
    return describe_report(report), FAILED if report.problems else DONE


@alerts_action
@board_option
@rules_option
@click.option("--state", type=Choice(STATES), help="Only deliveries in this state.")
@click.option("--rule", metavar="NAME", help="Only deliveries of this rule.")
@click.option(
    "--limit", type=int, default=100, metavar="N", help="Most deliveries to list. Default: 100."
)
def list_all(db: str, rules_path: str, state: str | None, rule: str | None, limit: int) -> Answer:
    """List deliveries: sent, waiting and failed."""
    if not 1 <= limit <= MAX_LISTED:
        raise RulesError([f"--limit is {limit}; expected 1 to {MAX_LISTED}"])
    with closing(open_reader(db)) as reader:
        if rule is not None:
            _check_rule(reader, rule, rules_path)
        deliveries = list_deliveries(reader, state, rule, limit=limit)
    lines = [
        clean(
            f"{format_time(delivery.changed_us)} {delivery.state} {delivery.rule} → "
            f"{delivery.channel} "
            f"{delivery.incident_id} {delivery.event} {delivery.error or ''}"
        )
        for delivery in deliveries.rows
    ]
    if deliveries.next:
        lines.append(f"these are the newest {limit}; --limit lists more")
    return lines or [_format_nothing(rule, state)], DONE


def _check_rule(reader: sqlite3.Connection, rule: str, rules_path: str) -> None:
    known = list_rule_names(reader)
    if rule in known:
        return
    if rules_path:
        known = list(dict.fromkeys([*(row.name for row in _load_rules(rules_path).rules), *known]))
    if rule not in known:
        expected = f"expected one of {', '.join(known)}" if known else "no rule ever ran here"
        raise RulesError([f"there is no rule {rule[:80]!r}; {expected}"])


def _format_nothing(rule: str | None, state: str | None) -> str:
    of = f" of rule {rule}" if rule else ""
    return f"nothing{of} is {state}" if state else f"nothing{of} was sent, and nothing waits"


@alerts_action
@click.argument("name", metavar="RULE", help="Rule's name.")
@board_option
@rules_option
def test(name: str, db: str, rules_path: str) -> Answer:
    """Send a test message to a rule's channels; nothing is stored."""
    rules, now_us = _load_rules(rules_path), _read_now_us()
    rule = next((candidate for candidate in rules.rules if candidate.name == name), None)
    if rule is None:
        known = ", ".join(known_rule.name for known_rule in rules.rules)
        raise RulesError([f"{rules.path}: there is no rule {name[:80]!r}; expected one of {known}"])
    lines, code = [], DONE
    for channel in (rules.channels[channel_name] for channel_name in rule.channels):
        try:
            unset = channel.describe_unset(os.environ)
            if unset:
                raise DeliveryFailed(unset)
            reply = send_message(
                lambda: make_test_message(rule.name, rules.base_url, now_us),
                channel,
                rules.base_url,
                os.environ,
            )
            lines.append(f"{channel.name}: sent{f', {reply}' if reply else ''}")
        except (DeliveryFailed, DeliveryUnknown) as problem:
            lines.append(
                f"{channel.name}: "
                f"{'not sent' if isinstance(problem, DeliveryFailed) else 'unknown'}: {problem}"
            )
            code = FAILED
    return lines, code


@alerts_action
def example() -> Answer:
    """Print an example file of rules."""
    return EXAMPLE.splitlines(), DONE


def describe_report(report: SendReport) -> list[str]:
    counts = (
        ("sent", report.sent_count),
        ("to be tried again", report.retried_count),
        ("failed", report.failed_count),
        ("unknown", report.unknown_count),
    )
    text = ", ".join(f"{count} {word}" for word, count in counts if count) or "nothing was due"
    waiting = (
        f"; {format_plural(report.waiting_count, 'incident')} wait" if report.waiting_count else ""
    )
    return [*report.notes, f"messages: {text}{waiting}"]


def _format_preview(
    reader: sqlite3.Connection, rules: AlertRules, rule: AlertRule, now_us: int
) -> Iterator[str]:
    for channel, events, is_due in preview(reader, rule, now_us):
        if not events:
            if is_due:
                yield f"  {rule.name} → {channel}, now: nothing"
            continue
        message = make_message("", rule.name, events, rules.base_url, now_us)
        yield f"  {rule.name} → {channel}, {'now' if is_due else 'later'}: {message.title}"
        for part in message.parts:
            yield from (f"    {line}" for line in part.lines)


def _load_rules(rules_path: str) -> AlertRules:
    return load_rules(_require_rules(rules_path))


def _require_rules(path: str) -> str:
    if not path:
        raise RulesError(
            [
                (
                    "no rules: give --rules FILE or COMPILEBOARD_ALERTS; `compileboard alerts "
                    "example` prints one"
                )
            ]
        )
    return path


def _read_now_us() -> int:
    return time.time_ns() // 1000
