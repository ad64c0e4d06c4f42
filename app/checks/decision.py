"""Apply rules to two sides."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import click

from compileboard.app.checks.check_sides import load_expected, load_run, select_from_both
from compileboard.app.checks.model import (
    FAIL,
    IMPROVED,
    NOTE,
    PASS,
    CannotCompare,
    Rule,
    RuleOptions,
    Side,
    Verdict,
)
from compileboard.app.checks.pairing import align_row_names
from compileboard.app.checks.rules import RULES, find_rules
from compileboard.app.checks.upstream_csv import is_file, read_table
from compileboard.app.comparison.model import format_names
from compileboard.app.comparison.pairs import pair_entries
from compileboard.app.comparison.sides import need_run
from compileboard.app.comparison.summary import describe_changes
from compileboard.app.comparison.table import list_verdicts
from compileboard.app.core.fields import Count
from compileboard.app.core.format import format_plural
from compileboard.app.core.newest import RecorderClock
from compileboard.app.core.schema import PRIVATE, one_of, published
from compileboard.app.core.store import Store, open_run_or_board
from compileboard.app.runs.model import list_run_causes
from compileboard.exit_codes import DONE, FAILED, REFUSED


@dataclass(frozen=True)
class CheckedRule:
    """The result of one rule.

    `is_due` means that the baseline has the values that the rule compares. A due rule that cannot
    be applied does not pass.
    """

    rule: Rule = field(metadata=PRIVATE)
    verdicts: Annotated[Sequence[Verdict], "Verdicts, those that fail first."]
    not_compared: Annotated[str | None, "Why the rule could not be applied; null if it was."] = None
    is_due: bool = field(default=False, metadata=PRIVATE)

    @property
    @published
    def name(self) -> Annotated[str, one_of(rule.name for rule in RULES), "The rule's name."]:
        return self.rule.name

    @property
    @published
    def about(self) -> Annotated[str, "What the rule requires."]:
        return self.rule.about

    @property
    @published
    def counts(self) -> Annotated[dict[str, Count], "Count of each verdict."]:
        counts = Counter(verdict.verdict for verdict in self.verdicts)
        return {word: counts[word] for word in self.rule.words if counts[word]}


@dataclass(frozen=True)
class Check:
    """The result of a check."""

    run: Annotated[str, "What was checked, in words: `run 01J…`."]
    baseline: Annotated[
        str | None, "What it was compared with, in words; null if no baseline was given."
    ]
    rules: Annotated[Sequence[CheckedRule], "Rules, in their order."]
    warnings: Annotated[Sequence[str], "Reasons to doubt the comparison."]
    model_counts: Annotated[
        Mapping[str, Count] | None,
        "Models by Compare's verdict on all their metrics: worse, better, both, neither.",
    ] = None
    changes: Annotated[str | None, "Changes of the models, as in Compare. null for a bare CSV."] = (
        None
    )
    # The compared program and commits, for people.
    subject: str = field(default="", metadata=PRIVATE)

    @property
    def failures(self) -> list[Verdict]:
        return [verdict for rule in self.rules for verdict in rule.verdicts if verdict.fails]

    @property
    def due(self) -> list[CheckedRule]:
        return [rule for rule in self.rules if rule.is_due]

    @property
    @published
    def exit_code(
        self,
    ) -> Annotated[
        int,
        (
            "As `compileboard check` exits: 0 pass, 1 fail, 2 where a rule that the baseline calls "
            "for could not be applied."
        ),
    ]:
        return FAILED if self.failures else REFUSED if self.due else DONE

    @property
    @published
    def passed(
        self,
    ) -> Annotated[bool, "Whether nothing fails and all that the baseline calls for was compared."]:
        return self.exit_code == DONE

    @property
    @published
    def headline(self) -> Annotated[str, "The outcome in a line."]:
        looked = [rule for rule in self.rules if not rule.not_compared]
        rules = format_plural(len(looked), "rule")
        against = f" against {self.baseline}" if self.baseline else ""
        if not self.failures and self.due:
            names = ", ".join(rule.name for rule in self.due)
            return (
                f"NOT COMPARED: {self.run}{against}, {rules} passed; the baseline calls for "
                f"{names} too"
            )
        if not self.failures:
            return f"PASS: {self.run}{against}, {rules}"
        count = len(self.failures)
        return (
            f"FAIL: {format_plural(count, 'verdict')} of {self.run}{against} "
            f"fail{'s' if count == 1 else ''}"
        )


def compare(
    actual: Side,
    expected: Side | None,
    names: Sequence[str],
    options: RuleOptions,
    *,
    allow_environment_change: bool = False,
    notes: Iterable[str] = (),
) -> Check:
    """Apply the named rules to both sides.

    Raises CannotCompare if the comparison would be meaningless, or for an unknown rule.
    """
    rules = find_rules(names)
    if expected is None:
        needy = [rule.name for rule in rules if rule.needs_baseline]
        if needy:
            raise CannotCompare(
                f"rule {needy[0]} needs a baseline: a run, a commit, a stored baseline or a CSV"
            )
    models = [row.name for row in actual.rows]
    actual, other = align_row_names(
        actual, expected if expected is not None else Side("no baseline", ())
    )
    named = (row.name for row, model in zip(actual.rows, models) if model in options.flaky)
    options = replace(options, flaky=options.flaky | frozenset(named))
    if expected is not None:
        _require_common_models(actual, other, rules)
    reports = [_decide_rule(rule, actual, other, options, names) for rule in rules]
    if all(report.not_compared for report in reports):
        raise CannotCompare(
            _describe_missing([actual] if expected is None else [other, actual], reports)
        )
    reports = [
        report
        for report in reports
        if not report.not_compared or report.is_due or not report.rule.is_optional
    ]
    warnings = [*notes, *_check_environment(actual, other, reports, allow_environment_change)]
    warnings += [
        f"{_name_side(side)} {side.failure}: what it did not reach is not compared"
        for side in (actual, other)
        if side.failure
    ]
    title = None if expected is None else other.title
    paired = pair_entries(other.results, actual.results, allow_environment_change)
    return Check(
        actual.title,
        title,
        reports,
        warnings,
        list_verdicts(paired.pairs) if paired.pairs else None,
        describe_changes(paired, other.results, actual.results) or None,
        _describe_subject(actual, other),
    )


def _name_side(side: Side) -> str:
    words = " at ".join(word for word in (side.name, side.commit) if word)
    return f"{words} ({side.title})" if words else side.title


def _describe_subject(actual: Side, expected: Side) -> str:
    names = " → ".join(dict.fromkeys(name for name in (expected.name, actual.name) if name))
    commits = " → ".join(
        dict.fromkeys(commit for commit in (expected.commit, actual.commit) if commit)
    )
    return " · ".join(part for part in (names, commits) if part)


def _describe_missing(sides: list[Side], reports: Iterable[CheckedRule]) -> str:
    for side in sides:
        if side.failure and not side.rows and side.breaks is None and side.causes is None:
            what = "the base, " if side is not sides[-1] else ""
            return (
                f"nothing can be compared: {what}{_name_side(side)}, {side.failure} before it "
                "compiled anything"
            )
    return "nothing can be compared: " + "; ".join(
        dict.fromkeys(str(report.not_compared) for report in reports)
    )


def _decide_rule(
    rule: Rule, actual: Side, expected: Side, options: RuleOptions, names: Sequence[str]
) -> CheckedRule:
    lacks = rule.applies(actual, expected, options)
    if lacks and rule.name in names:
        raise CannotCompare(f"rule {rule.name} cannot be decided: {lacks}")
    if lacks:
        is_due = rule.needs_baseline and not rule.applies(expected, expected, options)
        return CheckedRule(rule, (), lacks, is_due)
    verdicts = rule.check(*_narrow_sides(rule, actual, expected), options)
    rank = (FAIL, IMPROVED, NOTE, PASS).index
    return CheckedRule(rule, sorted(verdicts, key=lambda verdict: rank(verdict.outcome)))


def _narrow_sides(rule: Rule, actual: Side, expected: Side) -> tuple[Side, Side]:
    if not rule.columns:
        return actual, expected
    sides = (actual, expected)
    names = {
        row.name
        for side in sides
        for row in side.rows
        if any(name in row.cells for name in rule.columns)
    }
    chosen = [
        tuple(row for row in side.rows if row.name in names or not row.series) for side in sides
    ]
    return replace(actual, rows=chosen[0]), replace(expected, rows=chosen[1])


def _require_common_models(actual: Side, expected: Side, rules: list[Rule]) -> None:
    ours, theirs = actual.names(), expected.names()
    if any(rule.needs_baseline for rule in rules) and ours and theirs and not ours & theirs:
        raise CannotCompare(
            f"{actual.title} and {expected.title} have no model in common: "
            f"{format_names(sorted(ours))} against {format_names(sorted(theirs))}"
        )


def _check_environment(
    actual: Side, expected: Side, reports: list[CheckedRule], is_allowed: bool
) -> list[str]:
    ours, theirs = (
        {
            "device": ", ".join(
                sorted({str(device) for row in side.rows if (device := row.series.get("device"))})
            ),
            **side.environment,
        }
        for side in (actual, expected)
    )
    differing = [
        f"{name}: {ours[name]} against {theirs[name]}"
        for name in ours
        if ours[name] and theirs.get(name) and ours[name] != theirs[name]
    ]
    measuring = [
        report.name for report in reports if report.rule.is_performance and not report.not_compared
    ]
    unknown = [
        (
            f"the GPU or processor of {side.title} is not known: {', '.join(measuring)} may "
            "compare machines, not code"
        )
        for side in (actual, expected)
        if measuring and "hardware" not in side.environment and any(row.series for row in side.rows)
    ]
    if not differing:
        return unknown
    difference = f"the surroundings differ: {'; '.join(differing)}"
    if measuring and not is_allowed:
        raise CannotCompare(
            f"{difference}. {', '.join(measuring)} would compare machines, not code",
            flags="give --allow-environment-change, or name other rules with --rule",
        )
    return [
        *unknown,
        f"{difference} ({', '.join(measuring)} compare across that)" if measuring else difference,
    ]


# Options of a check; the caller chooses the runs and the output.
KEYS = (
    *("rule", "suite", "mode", "dtype", "device", "backend", "batch-size", "world-size", "model"),
    *("flaky", "no-known-flaky", "threshold", "threshold-scale", "metric", "fail-on-improvement"),
    *("noise-margin", "tolerance", "allow-improvement", "allow-environment-change"),
)


def load_rules(path: str, parameters: Mapping[str, click.Parameter]) -> dict[str, Any]:
    """Raises ValueError with the file and key if it cannot be read or has an unknown option."""
    # Not in Python 3.10.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}; expected TOML"
        ) from None
    values = {}
    for key, value in document.items():
        if key not in KEYS:
            raise ValueError(
                f"{path}: there is no rule option {key[:80]!r}; known: {', '.join(KEYS)}"
            )
        parameter = parameters[f"--{key}"]
        values[str(parameter.name)] = _read_value(value, parameter, f"{path}: {key}")
    return values


def _read_value(value: object, parameter: click.Parameter, name: str) -> Any:
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise ValueError(f"{name} is {str(value)[:80]!r}; expected true or false")
        return value
    values = value if isinstance(value, list) and parameter.multiple else [value]
    if not all(
        isinstance(entry, (str, int, float)) and not isinstance(entry, bool) for entry in values
    ):
        expected = (
            "a text, a number or a list of them" if parameter.multiple else "a text or a number"
        )
        raise ValueError(f"{name} is {str(value)[:80]!r}; expected {expected}")
    texts = [str(entry) for entry in values]
    return texts if parameter.multiple else texts[0]


@dataclass(frozen=True)
class CheckScreen:
    report: Check
    actual: Side
    expected: Side | None
    options: RuleOptions


def build_check(
    get_store: Callable[[], Store],
    clock: RecorderClock,
    *,
    run: str,
    baseline: str | None,
    rules: Sequence[str],
    choices: Mapping[str, Any],
    models: Sequence[str],
    options: RuleOptions,
    allow_environment_change: bool,
) -> CheckScreen:
    """Check a run against a baseline; the database is opened only if it stores one of them.

    Raises FilterError if a side does not exist, CannotCompare if the comparison would be
    meaningless.
    """
    recorded = None if is_file(run) else need_run(get_store(), clock, run)
    actual = read_table(run) if recorded is None else load_run(get_store(), clock, recorded)
    expected = None
    if baseline:
        expected = (
            read_table(baseline)
            if is_file(baseline)
            else load_expected(get_store(), clock, baseline, recorded)
        )
    actual, expected, notes = select_from_both(actual, expected, choices, models)
    report = compare(
        actual,
        expected,
        rules,
        options,
        allow_environment_change=allow_environment_change,
        notes=notes,
    )
    return CheckScreen(report, actual, expected, options)


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
