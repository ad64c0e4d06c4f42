"""Is a change more than noise? The verdict on one metric of one model, and always what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from app.analysis.comparison_metrics import REPEATS, YARDSTICKS, threshold_of
from app.analysis.comparison_model import Delta, Entry
from app.analysis.mann_whitney import mann_whitney, smallest_p
from app.analysis.metrics import BY_NAME, Metric, is_better

# asv's level: of 200 models that did not change, less than one looks changed.
# Source: airspeed-velocity/asv, asv/_stats.py, is_different
ALPHA = 0.002
CHANGED = ("worse", "changed", "better")  # the verdicts of what is more than noise
# What differs clearly between the repeats of two runs may still be two starts of one program.
SMALLEST = 0.02
VERDICTS = {
    "worse": "worse",
    "better": "better",
    "changed": "changed",
    "negligible": "below 2 %",
    "noise": "no clear difference",
    "same": "unchanged",
}
METHODS = {
    "intervals": "95 % intervals",
    "repeats": "Mann–Whitney U",
    "threshold": "threshold",
    "count": "count",
}
_PLAIN, _COMPILE = (threshold_of(BY_NAME[name]) for name in ("speedup", "compilation_latency_s"))
RULE = (
    f"A change of at least {SMALLEST:.0%} is more than noise where the 95% intervals lie apart, or Mann–Whitney's p"
    f" is below {ALPHA:g}; where neither is known, above {_PLAIN:.0%}, of compile times above {_COMPILE:.0%}."
    " A count is not noisy."
).replace("%", " %")
KINDS = {"worse": "bad", "better": "good", "changed": "warn", "negligible": "quiet", "noise": "quiet", "same": "quiet"}
# Of an accuracy that changed: the word and its kind.
ACCURACY_CHANGES = {"broke": ("now wrong", "bad"), "fixed": ("now right", "good")}


def judge(metric: Metric, base: Entry, new: Entry) -> Delta | None:
    """Compare one metric of one model; None where a side did not measure it."""
    before, after = base.values.get(metric.name), new.values.get(metric.name)
    if before is None or after is None:
        return None
    if metric.kind == "count" or before <= 0 or after <= 0 or before == after:
        return judge_values(metric, before, after)
    if metric.name == "speedup" and base.interval and new.interval:
        return _by_intervals(metric, (before, after), base.interval, new.interval)
    kept = (_pick_repeats(metric, base), _pick_repeats(metric, new))
    if kept[0] and kept[1] and smallest_p(len(kept[0]), len(kept[1])) < ALPHA:
        return _by_repeats(metric, (before, after), *kept)
    return judge_values(metric, before, after)


def judge_values(metric: Metric, base: float, new: float) -> Delta:
    """Compare two bare numbers: a count by itself, anything else by the metric's threshold."""
    change = new / base - 1 if base > 0 else 0.0 if new == base else None
    method = "count" if metric.kind == "count" else "threshold"
    if new == base:
        return Delta(metric, base, new, change, "same", method)
    if method == "count":
        return Delta(metric, base, new, change, _direct(metric, base, new), method)
    if change is None or new <= 0:
        return Delta(metric, base, new, change, "noise", method, "one side is not above 0, so there is no ratio")
    threshold = threshold_of(metric)
    word = "noise" if abs(change) <= threshold else _direct(metric, base, new)
    said = f"a change up to {100 * threshold:g} % is taken as noise"
    return Delta(metric, base, new, change, word, method, said)


def _by_intervals(
    metric: Metric, values: tuple[float, float], base: tuple[float, float], new: tuple[float, float]
) -> Delta:
    apart = base[1] < new[0] or new[1] < base[0]
    said = f"{base[0]:.3f} to {base[1]:.3f} and {new[0]:.3f} to {new[1]:.3f} {'lie apart' if apart else 'overlap'}"
    ratio = (new[0] / base[1], new[1] / base[0]) if base[0] > 0 and base[1] > 0 else None
    change, word = _weigh(metric, values, apart)
    return Delta(metric, *values, change, word, "intervals", said, ratio_interval=ratio)


def _by_repeats(metric: Metric, values: tuple[float, float], base: Sequence[float], new: Sequence[float]) -> Delta:
    found = mann_whitney(base, new)
    change, word = _weigh(metric, values, found.p_value < ALPHA)
    said = f"p = {found.p_value:.2g} over {len(base)} and {len(new)} repeats"
    return Delta(metric, *values, change, word, "repeats", said, found.p_value)


def _weigh(metric: Metric, values: tuple[float, float], differs: bool) -> tuple[float, str]:
    change = values[1] / values[0] - 1
    if not differs:
        return change, "noise"
    return change, _direct(metric, *values) if abs(change) >= SMALLEST else "negligible"


def _direct(metric: Metric, base: float, new: float) -> str:
    better = None if metric.name in YARDSTICKS else is_better(metric, base, new)
    return "changed" if better is None else "better" if better else "worse"


def _pick_repeats(metric: Metric, entry: Entry) -> Sequence[float]:
    wanted = REPEATS.get(metric.name, "")
    if wanted != "ratio":
        return entry.repeats.get(wanted, ())
    eager, compiled = entry.repeats.get("eager", ()), entry.repeats.get("compiled", ())
    if len(eager) != len(compiled) or min(compiled, default=0) <= 0:
        return ()
    return [of / by for of, by in zip(eager, compiled)]  # interleaved: each pair is a speedup
