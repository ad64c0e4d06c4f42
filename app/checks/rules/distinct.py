"""`new-breaks` and `new-recompiles`: new distinct graph breaks and recompile causes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from compileboard.app.checks.rules.model import (
    FAIL,
    NOTE,
    PASS,
    Rule,
    RuleDistinct,
    RuleOptions,
    RuleVerdict,
    Side,
)

WHOLE_RUN = "the run"  # as a model, where a run tells none


def compare(
    rule: Rule,
    actual: Sequence[RuleDistinct],
    expected: Sequence[RuleDistinct],
    sides: tuple[Side, Side],
    words: tuple[str, str],
) -> list[RuleVerdict]:
    new_word, gone_word = words
    names = sides[0].names()
    models = names & sides[1].names()
    known, present = _Known(expected, models), _Known(actual, models)
    verdicts = [
        replace(
            rule.make(rule_distinct.model or WHOLE_RUN, new_word, describe(rule_distinct)),
            new=rule_distinct,
        )
        for rule_distinct in actual
        if rule_distinct not in known
    ]
    known_count = len(actual) - len(verdicts)
    for rule_distinct in expected:
        is_judged = (
            rule_distinct.model is None or rule_distinct.model in names
        )  # of a model that vanished nothing is resolved
        if is_judged and rule_distinct not in present:
            verdicts.append(
                rule.make(rule_distinct.model or WHOLE_RUN, gone_word, describe(rule_distinct))
            )
    if known_count or not verdicts:
        verdicts.append(rule.make(WHOLE_RUN, "PASS", f"{known_count} known"))
    return verdicts


def need_recorded(attribute: str, what: str) -> Callable[[Side, Side, RuleOptions], str]:
    def applies(actual: Side, expected: Side, _options: RuleOptions) -> str:
        without = next(
            (side.title for side in (actual, expected) if getattr(side, attribute) is None), None
        )
        return "" if without is None else f"{without} has no recorded {what}, only counts"

    return applies


class _Known:
    def __init__(self, side: Sequence[RuleDistinct], models: set[str]) -> None:
        self._models = (
            models if any(rule_distinct.model is not None for rule_distinct in side) else set[str]()
        )
        self._by_fingerprint: dict[str, set[str | None]] = {}
        for rule_distinct in side:
            self._by_fingerprint.setdefault(rule_distinct.fingerprint, set()).add(
                rule_distinct.model
            )

    def __contains__(self, rule_distinct: RuleDistinct) -> bool:
        models = self._by_fingerprint.get(rule_distinct.fingerprint, set())
        return (
            bool(models & {rule_distinct.model, None})
            if rule_distinct.model in self._models
            else bool(models)
        )


def describe(rule_distinct: RuleDistinct) -> str:
    kind = f"{rule_distinct.kind}: " if rule_distinct.kind else ""
    where = (
        f"{rule_distinct.file}:{rule_distinct.line}"
        if rule_distinct.file and rule_distinct.line
        else rule_distinct.file or ""
    )
    position = " ".join(
        part
        for part in (where, f"in {rule_distinct.function}" if rule_distinct.function else "")
        if part
    )
    times = f"{rule_distinct.count} times" if rule_distinct.count != 1 else "once"
    reason = " ".join(rule_distinct.reason.split())
    return f"{kind}{reason}" + (f" at {position}" if position else "") + f", {times}"


def check_breaks(actual: Side, expected: Side, _options: RuleOptions) -> list[RuleVerdict]:
    return compare(
        NEW_BREAKS_RULE,
        actual.breaks or (),
        expected.breaks or (),
        (actual, expected),
        ("NEW_BREAK", "RESOLVED"),
    )


NEW_BREAKS_RULE = Rule(
    name="new-breaks",
    about="no distinct graph break that the baseline has not",
    source="CompileBoard",
    words={"PASS": PASS, "RESOLVED": NOTE, "NEW_BREAK": FAIL},
    check=check_breaks,
    applies=need_recorded("breaks", "graph breaks"),
    is_default=True,
)


def check_recompiles(actual: Side, expected: Side, _options: RuleOptions) -> list[RuleVerdict]:
    words = ("NEW_RECOMPILE", "RESOLVED")
    return compare(
        NEW_RECOMPILES_RULE, actual.causes or (), expected.causes or (), (actual, expected), words
    )


NEW_RECOMPILES_RULE = Rule(
    name="new-recompiles",
    about="no cause of recompiles that the baseline has not",
    source="CompileBoard",
    words={"PASS": PASS, "RESOLVED": NOTE, "NEW_RECOMPILE": FAIL},
    check=check_recompiles,
    applies=need_recorded("causes", "recompiles"),
    is_default=True,
)
