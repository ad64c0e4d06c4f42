"""What is new and what is gone among distinct things: of a model where both sides tell, else of the whole run."""

from __future__ import annotations

from collections.abc import Sequence

from app.analysis.gates.model import Distinct, Rule, Side, Verdict


def compare(
    rule: Rule,
    actual: Sequence[Distinct],
    expected: Sequence[Distinct],
    sides: tuple[Side, Side],
    words: tuple[str, str],
) -> list[Verdict]:
    """Name what the run has and the baseline has not, then what is gone; one line for all that is known."""
    new_word, gone_word = words
    models = sides[0].names() & sides[1].names()
    verdicts = [
        rule.make(it.model or "the run", new_word, describe(it))
        for it in actual
        if not _is_in(it, expected, models, it.model)
    ]
    known_count = len(actual) - len(verdicts)
    for it in expected:
        is_judged = it.model is None or it.model in sides[0].names()  # of a model that vanished nothing is resolved
        if is_judged and not _is_in(it, actual, models, it.model):
            verdicts.append(rule.make(it.model or "the run", gone_word, describe(it)))
    if known_count or not verdicts:
        verdicts.append(rule.make("the run", "PASS", f"{known_count} known"))
    return verdicts


def _is_in(it: Distinct, others: Sequence[Distinct], models: set[str], model: str | None) -> bool:
    """Tell whether others have it; in its own model where both sides have that model and the other side says models."""
    if model in models and any(other.model is not None for other in others):
        return any(o.fingerprint == it.fingerprint and o.model in (model, None) for o in others)
    return any(other.fingerprint == it.fingerprint for other in others)


def describe(it: Distinct) -> str:
    """Write a distinct thing in one line: what, how often, where."""
    kind = f"{it.kind}: " if it.kind else ""
    where = f"{it.file}:{it.line}" if it.file and it.line else it.file or ""
    place = " ".join(part for part in (where, f"in {it.function}" if it.function else "") if part)
    times = f"{it.count} times" if it.count != 1 else "once"
    reason = " ".join(it.reason.split())
    return f"{kind}{reason}" + (f" at {place}" if place else "") + f", {times}"
