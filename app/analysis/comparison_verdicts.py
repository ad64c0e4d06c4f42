"""Is a change more than noise? The verdict on one metric of one model, and always what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compileboard.app.analysis.comparison_metrics import MEDIANS, SAMPLES, YARDSTICKS, threshold_of
from compileboard.app.analysis.comparison_model import Delta, Entry
from compileboard.app.analysis.mann_whitney import mann_whitney, smallest_p
from compileboard.app.analysis.metrics import BY_NAME, Metric, is_better

# asv's level: of 200 models that did not change, less than one looks changed.
# Source: airspeed-velocity/asv, asv/_stats.py, is_different
ALPHA = 0.002
CHANGED = ("worse", "changed", "better")  # the verdicts of what is more than noise
# What differs clearly between the repeats of two runs may still be two starts of one program.
SMALLEST = 0.02
FEWEST_SAMPLES = 3
VERDICTS = {
    "worse": "worse",
    "better": "better",
    "changed": "changed",
    "negligible": "below 2 %",
    "noise": "no clear difference",
    "single": "one sample each",
    "same": "unchanged",
}
METHODS = {
    "intervals": "95 % intervals",
    "repeats": "Mann–Whitney U",
    "samples": "samples apart",
    "threshold": "threshold",
    "count": "count",
}
_PLAIN, _COMPILE = (threshold_of(BY_NAME[name]) for name in ("speedup", "compilation_latency_s"))
RULE = (
    f"A change of at least {SMALLEST:.0%} is more than noise where the 95% intervals lie apart, or Mann–Whitney's p"
    f" is below {ALPHA:g}; of {FEWEST_SAMPLES} samples or more, above {_PLAIN:.0%} (compile times {_COMPILE:.0%})"
    " where they lie further apart than either side is wide. What was measured once is neither better nor worse."
    " A count is not noisy."
).replace("%", " %")
KINDS = {"worse": "bad", "better": "good", "changed": "warn"} | dict.fromkeys(
    ("negligible", "noise", "single", "same"), "quiet"
)
# Of an accuracy that changed: the word and its kind.
ACCURACY_CHANGES = {"broke": ("now wrong", "bad"), "fixed": ("now right", "good")}


@dataclass(frozen=True)
class Measurement:
    """One metric of one side: its value, and what tells how far that may be off."""

    value: float
    interval: tuple[float, float] | None = None
    samples: Sequence[float] | None = ()  # None: a file's number, of which nobody knows how many there were


def judge(metric: Metric, base: Entry, new: Entry) -> Delta | None:
    """Compare one metric of one model; None where a side did not measure it."""
    before, after = _measure(metric, base), _measure(metric, new)
    return None if before is None or after is None else decide(metric, before, after)


def judge_values(metric: Metric, base: float, new: float) -> Delta:
    """Compare two bare numbers."""
    return decide(metric, Measurement(base), Measurement(new))


def decide(metric: Metric, base: Measurement, new: Measurement, threshold: float | None = None) -> Delta:
    """Say what a change is: the one place where a verdict is made.

    A count is compared by itself; intervals, many repeats or some samples tell what is noise; of medians whose repeats
    were not kept the threshold does. What was measured once on a side is never better or worse.
    """
    threshold = threshold_of(metric) if threshold is None else threshold
    before, after = base.value, new.value
    change = after / before - 1 if before > 0 else 0.0 if after == before else None
    is_count = metric.kind == "count"
    if before == after or is_count:
        word = "same" if before == after else _direct(metric, before, after)
        return Delta(metric, before, after, change, word, "count" if is_count else "threshold")
    if change is None or after <= 0:
        reason = "one side is not above 0, so there is no ratio"
        return Delta(metric, before, after, change, "noise", "threshold", reason)
    if base.interval and new.interval:
        return _by_intervals(metric, (before, after), base.interval, new.interval)
    base_samples, new_samples = base.samples or (), new.samples or ()
    counts = len(base_samples), len(new_samples)
    if min(counts) and smallest_p(*counts) < ALPHA:
        return _by_repeats(metric, (before, after), base_samples, new_samples)
    if min(counts) >= FEWEST_SAMPLES:
        return _by_samples(metric, (before, after), base_samples, new_samples, threshold)
    detail = f"a change up to {100 * threshold:g} % is taken as noise"
    if abs(change) <= threshold:
        return Delta(metric, before, after, change, "noise", "threshold", detail)
    known = [None if _is_unknown(metric, side) else len(side.samples or ()) for side in (base, new)]
    if any(count is not None and count < FEWEST_SAMPLES for count in known):
        return Delta(metric, before, after, change, "single", "threshold", _describe_counts(known))
    return Delta(metric, before, after, change, _direct(metric, before, after), "threshold", detail)


def _measure(metric: Metric, entry: Entry) -> Measurement | None:
    value = entry.values.get(metric.name)
    if value is None:
        return None
    return Measurement(value, entry.interval if metric.name == "speedup" else None, pick_samples(metric, entry.repeats))


def _is_unknown(metric: Metric, side: Measurement) -> bool:
    """Return True if a number may be made of any count of samples: a file's, or a median without its repeats."""
    return side.samples is None or (not side.samples and metric.name in MEDIANS)


def _describe_counts(counts: Sequence[int | None]) -> str:
    words = [
        "no known count" if count is None else f"{count} samples" if count > 1 else "one sample"  # kept or not
        for count in counts
    ]
    counted = f"{words[0]} each" if words[0] == words[1] else f"{words[0]} on base, {words[1]} in new"
    return f"{counted}; a verdict takes {FEWEST_SAMPLES} each"


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


def _by_samples(
    metric: Metric, values: tuple[float, float], base: Sequence[float], new: Sequence[float], threshold: float
) -> Delta:
    """Compare some samples, too few for a test of ranks: a change lies further apart than either side is wide.

    Of two sets of three of one normal distribution that differ by more than 10 %, less than 1 in 100 do so.
    """
    gap = max(min(new) - max(base), min(base) - max(new))
    is_apart = gap > max(max(base) - min(base), max(new) - min(new))
    change = values[1] / values[0] - 1
    is_changed = is_apart and abs(change) > threshold
    ranges = " and ".join(f"{min(samples):.3g} to {max(samples):.3g}" for samples in (base, new))
    detail = f"{len(base)} and {len(new)} samples, {ranges}{'' if is_apart else ', not clearly apart'}"
    return Delta(metric, *values, change, _direct(metric, *values) if is_changed else "noise", "samples", detail)


def _weigh(metric: Metric, values: tuple[float, float], differs: bool) -> tuple[float, str]:
    change = values[1] / values[0] - 1
    if not differs:
        return change, "noise"
    if metric.name not in MEDIANS:  # its samples are of one process, and two processes differ by more
        return change, _direct(metric, *values) if abs(change) > threshold_of(metric) else "noise"
    return change, _direct(metric, *values) if abs(change) >= SMALLEST else "negligible"


def _direct(metric: Metric, base: float, new: float) -> str:
    better = None if metric.name in YARDSTICKS else is_better(metric, base, new)
    return "changed" if better is None else "better" if better else "worse"


def pick_samples(metric: Metric, repeats: Mapping[str, Sequence[float]]) -> Sequence[float]:
    """Return what tells the noise of a metric; nothing where it was not kept."""
    samples = [repeats.get(name, ()) for name in SAMPLES.get(metric.name, ())]
    if len(samples) < 2:
        return samples[0] if samples else ()
    over, under = samples
    if len(over) != len(under) or min(under, default=0) <= 0:
        return ()
    return [of / by for of, by in zip(over, under)]  # measured in turns: each pair is a ratio
