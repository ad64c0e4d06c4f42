"""A check: a run and what it is compared with under rules, for the command line and the API."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compileboard.app.checks.decision import Report, compare
from compileboard.app.checks.rules.model import RuleOptions, Side
from compileboard.app.checks.sides import choose_both, load_expected, load_run, need_run
from compileboard.app.checks.tables import is_file, read_table
from compileboard.app.queries.engine import SqliteEngine


@dataclass(frozen=True)
class CheckRequest:
    """What is asked of a check. `choices` are fields of a series, `models` names; without any, all of them."""

    run: str = "latest"
    baseline: str | None = None
    rules: Sequence[str] = ()
    choices: Mapping[str, Any] = field(default_factory=dict)
    models: Sequence[str] = ()
    options: RuleOptions = field(default_factory=RuleOptions)
    allow_improvement: bool = False
    allow_environment_change: bool = False


@dataclass(frozen=True)
class CheckScreen:
    """What a check found, the sides that it compared, and what the rules were told.

    `expected` is None where no baseline was named.
    """

    report: Report
    actual: Side
    expected: Side | None
    options: RuleOptions


def build_check(open_reader: Callable[[], sqlite3.Connection], request: CheckRequest) -> CheckScreen:
    """Put what a request names under its rules; the database is opened only where a side of it is in it.

    Raises: FilterError if a side is not there; CannotCompare if the comparison would mean nothing.
    """
    run = None if is_file(request.run) else need_run(open_reader(), SqliteEngine(open_reader()), request.run)
    actual = read_table(request.run) if run is None else load_run(open_reader(), run)
    expected = None
    if request.baseline:
        is_table = is_file(request.baseline)
        expected = (
            read_table(request.baseline)
            if is_table
            else load_expected(open_reader(), SqliteEngine(open_reader()), request.baseline, run)
        )
    actual, expected, notes = choose_both(actual, expected, request.choices, request.models)
    report = compare(
        actual,
        expected,
        request.rules,
        request.options,
        allow_improvement=request.allow_improvement,
        allow_environment_change=request.allow_environment_change,
        notes=notes,
    )
    return CheckScreen(report, actual, expected, request.options)
