"""What a comparison adds to the metrics: their groups, which repeats tell their noise, what counts as a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compileboard.app.analysis.comparison.model import MetricDelta, ModelResult
from compileboard.app.analysis.metrics import BY_NAME, Metric, is_better
from compileboard.app.analysis.statistics import mann_whitney, smallest_p

# Key, label and the metrics' names; the first of a group is the one that is drawn.
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "speed": ("Speed", ("speedup", "abs_latency_ms", "eager_latency_ms")),
    "compile": (
        "Compile time",
        ("compilation_latency_s", "warm_compilation_latency_s", "cache_lookup_latency_us"),
    ),
    "memory": ("Memory", ("dynamo_peak_mem_gb", "compression_ratio", "eager_peak_mem_gb")),
    "graphs": (
        "Graphs and breaks",
        (
            "graph_breaks",
            "recompiles",
            "unique_graph_breaks",
            "unique_graphs",
            "calls_captured",
            "fallbacks_to_eager",
            "cudagraph_skips",
        ),
    ),
}
COMPARED = tuple(BY_NAME[name] for _label, names in GROUPS.values() for name in names)
# What the others are measured against: where eager mode changes, the machine or torch did, and no model is worse.
YARDSTICKS = ("eager_latency_ms", "eager_peak_mem_gb")
# Which samples tell the noise of a metric; of two names, the first ÷ the second of what was measured together.
SAMPLES: dict[str, tuple[str, ...]] = {
    "speedup": ("eager", "compiled"),
    "abs_latency_ms": ("compiled",),
    "eager_latency_ms": ("eager",),
    "compilation_latency_s": ("cold_compile_s",),
    "warm_compilation_latency_s": ("warm_compile_s",),
    "dynamo_peak_mem_gb": ("compiled_peak_gb",),
    "eager_peak_mem_gb": ("eager_peak_gb",),
    "compression_ratio": ("eager_peak_gb", "compiled_peak_gb"),
}
# Medians of many repeats, also where these were not kept; every other number was measured once where it has no samples.
MEDIANS = ("speedup", "abs_latency_ms", "eager_latency_ms", "geomean_speedup")
# What a change must exceed where few samples tell the noise, or none. Compiling varies more.
_THRESHOLD, _COMPILE_THRESHOLD = 0.05, 0.1
_COMPILING = (*GROUPS["compile"][1], "compile_s")
# Of whole runs, with and without a benchmark.
TOTALS = (
    Metric("compile_s", "Compile time", "s", "down_is_good", None, "value", "torch", "all compilation records"),
    Metric("compile_count", "Compiles", "", "neutral", 0, "count", "torch", "attempts to compile a frame"),
    Metric("graph_break_count", "Graph breaks", "", "down_is_good", 0, "count", "torch", "events"),
    Metric("recompile_count", "Recompiles", "", "down_is_good", 0, "count", "torch", "events"),
    Metric("recompile_limit_count", "Limit hits", "", "down_is_good", 0, "count", "torch", "frames given up"),
    Metric("failure_count", "Failures", "", "down_is_good", 0, "count", "torch", "of compiles, and of compiled code"),
    Metric("cache_miss_count", "Cache misses", "", "down_is_good", 0, "count", "torch", "look-ups without a hit"),
)


def threshold_of(metric: Metric) -> float:
    """Return the share that a change of a single number must exceed."""
    return _COMPILE_THRESHOLD if metric.name in _COMPILING else _THRESHOLD


def group_of(name: str) -> str:
    """Return the key of the group that a metric is in."""
    return next(key for key, (_label, names) in GROUPS.items() if name in names)


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


def judge(metric: Metric, base: ModelResult, new: ModelResult) -> MetricDelta | None:
    """Compare one metric of one model; None where a side did not measure it."""
    before, after = _measure(metric, base), _measure(metric, new)
    return None if before is None or after is None else decide(metric, before, after)


def judge_values(metric: Metric, base: float, new: float) -> MetricDelta:
    """Compare two bare numbers."""
    return decide(metric, Measurement(base), Measurement(new))


def decide(metric: Metric, base: Measurement, new: Measurement, threshold: float | None = None) -> MetricDelta:
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
        return MetricDelta(metric, before, after, change, word, "count" if is_count else "threshold")
    if change is None or after <= 0:
        reason = "one side is not above 0, so there is no ratio"
        return MetricDelta(metric, before, after, change, "noise", "threshold", reason)
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
        return MetricDelta(metric, before, after, change, "noise", "threshold", detail)
    known = [None if _is_unknown(metric, side) else len(side.samples or ()) for side in (base, new)]
    if any(count is not None and count < FEWEST_SAMPLES for count in known):
        return MetricDelta(metric, before, after, change, "single", "threshold", _describe_counts(known))
    return MetricDelta(metric, before, after, change, _direct(metric, before, after), "threshold", detail)


def _measure(metric: Metric, entry: ModelResult) -> Measurement | None:
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
) -> MetricDelta:
    apart = base[1] < new[0] or new[1] < base[0]
    said = f"{base[0]:.3f} to {base[1]:.3f} and {new[0]:.3f} to {new[1]:.3f} {'lie apart' if apart else 'overlap'}"
    ratio = (new[0] / base[1], new[1] / base[0]) if base[0] > 0 and base[1] > 0 else None
    change, word = _weigh(metric, values, apart)
    return MetricDelta(metric, *values, change, word, "intervals", said, ratio_interval=ratio)


def _by_repeats(
    metric: Metric, values: tuple[float, float], base: Sequence[float], new: Sequence[float]
) -> MetricDelta:
    found = mann_whitney(base, new)
    change, word = _weigh(metric, values, found.p_value < ALPHA)
    said = f"p = {found.p_value:.2g} over {len(base)} and {len(new)} repeats"
    return MetricDelta(metric, *values, change, word, "repeats", said, found.p_value)


def _by_samples(
    metric: Metric, values: tuple[float, float], base: Sequence[float], new: Sequence[float], threshold: float
) -> MetricDelta:
    """Compare some samples, too few for a test of ranks: a change lies further apart than either side is wide.

    Of two sets of three of one normal distribution that differ by more than 10 %, less than 1 in 100 do so.
    """
    gap = max(min(new) - max(base), min(base) - max(new))
    is_apart = gap > max(max(base) - min(base), max(new) - min(new))
    change = values[1] / values[0] - 1
    is_changed = is_apart and abs(change) > threshold
    ranges = " and ".join(f"{min(samples):.3g} to {max(samples):.3g}" for samples in (base, new))
    detail = f"{len(base)} and {len(new)} samples, {ranges}{'' if is_apart else ', not clearly apart'}"
    return MetricDelta(metric, *values, change, _direct(metric, *values) if is_changed else "noise", "samples", detail)


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
