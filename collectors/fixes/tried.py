"""Put what was measured of a run's fixes before what is estimated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.fixes.fix import SuggestedFix, TriedFix

INTERRUPTED = "interrupted"


def add_trials(causes: Sequence[Cause], trials: Iterable[TriedFix]) -> list[Cause]:
    """Give each cause the newest trial of each fix. Causes with a verified fix come first, by the
    time that it saved; each keeps its number. Among a cause's fixes those that were tried without
    success come last.
    """
    by_cause: dict[str | None, dict[str | None, TriedFix]] = {}
    for trial in sorted(trials, key=lambda trial: trial.ended_us, reverse=True):
        if trial.outcome != INTERRUPTED:
            by_cause.setdefault(trial.cause_fingerprint, {}).setdefault(trial.fix_id, trial)
    tried = [_add(cause, by_cause.get(cause.fingerprint, {})) for cause in causes]
    return sorted(tried, key=_rank)


def _add(cause: Cause, trials: dict[str | None, TriedFix]) -> Cause:
    def rank(suggested: SuggestedFix) -> int:
        trial = trials.get(suggested.fix.id)
        return 1 if trial is None else 0 if trial.is_verified else 2

    if not trials:
        return cause
    ordered = sorted(trials.values(), key=lambda trial: not trial.is_verified)
    return replace(cause, fixes=tuple(sorted(cause.fixes, key=rank)), trials=tuple(ordered))


def _rank(cause: Cause) -> tuple[bool, int]:
    verified = cause.verified
    return verified is None, -(verified.saved_us or 0) if verified else 0
