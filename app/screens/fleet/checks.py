"""A check of a run against another side, for the command line and the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from compileboard.app.checks.decision import Report, compare
from compileboard.app.checks.rules import RULES
from compileboard.app.checks.rules.model import FAIL, IMPROVED, NOTE, PASS, RuleOptions, Side
from compileboard.app.checks.sides import choose_both, load_expected, load_run, need_run
from compileboard.app.checks.tables import is_file, read_table
from compileboard.app.engines.store import Store, open_run_or_board
from compileboard.app.queries.fields import Count
from compileboard.app.queries.newest import RecorderClock
from compileboard.app.schema import one_of
from compileboard.app.screens.run.run import list_run_causes


@dataclass(frozen=True)
class CheckRequest:
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
    report: Report
    actual: Side
    expected: Side | None
    options: RuleOptions


def build_check(
    get_store: Callable[[], Store], clock: RecorderClock, request: CheckRequest
) -> CheckScreen:
    """Check the sides that a request names; the database is opened only if a side is stored in it.

    Raises FilterError if a side does not exist, CannotCompare if the comparison would be
    meaningless.
    """
    run = None if is_file(request.run) else need_run(get_store(), clock, request.run)
    actual = read_table(request.run) if run is None else load_run(get_store(), clock, run)
    expected = None
    if request.baseline:
        is_table = is_file(request.baseline)
        expected = (
            read_table(request.baseline)
            if is_table
            else load_expected(get_store(), clock, request.baseline, run)
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


def load_fixes(get_store: Callable[[], Store], clock: RecorderClock, text: str) -> dict[str, str]:
    if is_file(text):
        return {}
    run = need_run(get_store(), clock, text)
    causes = list_run_causes(open_run_or_board(get_store(), run.id), run)
    helping = [(cause, [fix.title for fix in cause.advice if fix.helps]) for cause in causes]
    return {
        fingerprint: titles[0]
        for cause, titles in helping
        if titles
        for fingerprint in cause.fingerprints
    }


@dataclass(frozen=True)
class VerdictJson:
    """The result of a rule for one model."""

    name: Annotated[str, "The model."]
    verdict: Annotated[str, "The verdict, in upstream's word where the rule is upstream's."]
    outcome: Annotated[str, one_of((PASS, NOTE, IMPROVED, FAIL)), "What kind of verdict that is."]
    fails: Annotated[bool, "Whether it fails the check."]
    detail: Annotated[str, "Expected and actual values."]


@dataclass(frozen=True)
class CheckedRule:
    """The result of one rule."""

    name: Annotated[str, one_of(rule.name for rule in RULES), "The rule's name."]
    about: Annotated[str, "What it asks for."]
    not_compared: Annotated[str | None, "Why it could not look."]
    counts: Annotated[dict[str, Count], "Count of each verdict."]
    verdicts: Annotated[Sequence[VerdictJson], "Verdicts, those that fail first."]


@dataclass(frozen=True)
class CheckJson:
    """The result of a check."""

    passed: Annotated[
        bool, "Whether nothing fails and all that the baseline calls for was compared."
    ]
    exit_code: Annotated[
        int,
        (
            "As `compileboard check` exits: 0 pass, 1 fail, 2 where a rule that the baseline calls "
            "for could not look."
        ),
    ]
    headline: Annotated[str, "The outcome in a line."]
    run: Annotated[str, "The check."]
    baseline: Annotated[str | None, "What it was compared with."]
    warnings: Annotated[Sequence[str], "What makes the comparison doubtful."]
    model_counts: Annotated[
        dict[str, Count] | None,
        "Models by Compare's verdict on all their metrics: worse, better, both, neither.",
    ]
    changes: Annotated[str | None, "Changes of the models, as in Compare. null for a bare CSV."]
    rules: Annotated[Sequence[CheckedRule], "Rules, in their order."]


def report_check(report: Report) -> CheckJson:
    return CheckJson(
        passed=report.exit_code == 0,
        exit_code=report.exit_code,
        headline=report.headline,
        run=report.run,
        baseline=report.baseline,
        warnings=report.warnings,
        model_counts=None if report.model_counts is None else dict(report.model_counts),
        changes=report.changes or None,
        rules=[
            CheckedRule(
                name=checked.rule.name,
                about=checked.rule.about,
                not_compared=checked.lacks or None,
                counts=checked.counts,
                verdicts=[
                    VerdictJson(
                        verdict.name,
                        verdict.word,
                        verdict.outcome,
                        report.fails(verdict),
                        verdict.detail,
                    )
                    for verdict in checked.verdicts
                ],
            )
            for checked in report.rules
        ],
    )
