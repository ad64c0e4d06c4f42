"""What is new and what is gone among distinct things: of a model where both sides tell, else of the whole run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compileboard.app.checks.rules.model import FAIL, NOTE, PASS, Rule, RuleDistinct, RuleOptions, RuleVerdict, Side


def compare(
    rule: Rule,
    actual: Sequence[RuleDistinct],
    expected: Sequence[RuleDistinct],
    sides: tuple[Side, Side],
    words: tuple[str, str],
) -> list[RuleVerdict]:
    """Name what the run has and the baseline has not, then what is gone; one line for all that is known."""
    new_word, gone_word = words
    names = sides[0].names()
    models = names & sides[1].names()
    known, found = _Known(expected, models), _Known(actual, models)
    verdicts = [rule.make(it.model or "the run", new_word, describe(it)) for it in actual if it not in known]
    known_count = len(actual) - len(verdicts)
    for it in expected:
        is_judged = it.model is None or it.model in names  # of a model that vanished nothing is resolved
        if is_judged and it not in found:
            verdicts.append(rule.make(it.model or "the run", gone_word, describe(it)))
    if known_count or not verdicts:
        verdicts.append(rule.make("the run", "PASS", f"{known_count} known"))
    return verdicts


def need_recorded(attribute: str, what: str) -> Callable[[Side, Side, RuleOptions], str]:
    """Say of a rule that both sides must have recorded these things, and not only their number."""

    def applies(actual: Side, expected: Side, _options: RuleOptions) -> str:
        without = next((side.title for side in (actual, expected) if getattr(side, attribute) is None), None)
        return "" if without is None else f"{without} has no recorded {what}, only counts"

    return applies


class _Known:
    """Tell whether a side has a distinct thing; in its own model where both sides have it and this one says models."""

    def __init__(self, side: Sequence[RuleDistinct], models: set[str]) -> None:
        self._models = models if any(it.model is not None for it in side) else set[str]()
        self._found: dict[str, set[str | None]] = {}
        for it in side:
            self._found.setdefault(it.fingerprint, set()).add(it.model)

    def __contains__(self, it: RuleDistinct) -> bool:
        found = self._found.get(it.fingerprint, set())
        return bool(found & {it.model, None}) if it.model in self._models else bool(found)


def describe(it: RuleDistinct) -> str:
    """Write a distinct thing in one line: what, how often, where."""
    kind = f"{it.kind}: " if it.kind else ""
    where = f"{it.file}:{it.line}" if it.file and it.line else it.file or ""
    place = " ".join(part for part in (where, f"in {it.function}" if it.function else "") if part)
    times = f"{it.count} times" if it.count != 1 else "once"
    reason = " ".join(it.reason.split())
    return f"{kind}{reason}" + (f" at {place}" if place else "") + f", {times}"


def check_breaks(actual: Side, expected: Side, _options: RuleOptions) -> list[RuleVerdict]:
    """Compare distinct graph breaks by fingerprint."""
    return compare(
        NEW_BREAKS_RULE, actual.breaks or (), expected.breaks or (), (actual, expected), ("NEW_BREAK", "RESOLVED")
    )


NEW_BREAKS_RULE = Rule(
    name="new-breaks",
    said="no distinct graph break that the baseline has not",
    source="CompileBoard",
    words={"PASS": PASS, "RESOLVED": NOTE, "NEW_BREAK": FAIL},
    check=check_breaks,
    applies=need_recorded("breaks", "graph breaks"),
    is_default=True,
)


def check_recompiles(actual: Side, expected: Side, _options: RuleOptions) -> list[RuleVerdict]:
    """Compare causes of recompiles by fingerprint."""
    words = ("NEW_RECOMPILE", "RESOLVED")
    return compare(NEW_RECOMPILES_RULE, actual.causes or (), expected.causes or (), (actual, expected), words)


NEW_RECOMPILES_RULE = Rule(
    name="new-recompiles",
    said="no cause of recompiles that the baseline has not",
    source="CompileBoard",
    words={"PASS": PASS, "RESOLVED": NOTE, "NEW_RECOMPILE": FAIL},
    check=check_recompiles,
    applies=need_recorded("causes", "recompiles"),
    is_default=True,
)
