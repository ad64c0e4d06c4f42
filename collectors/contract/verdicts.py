"""Decide whether a number is better or worse than another.

Every comparison of runs uses this module, so that verdicts agree. It needs only the standard
library.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Generic, Literal, Protocol, TypeVar

from .rank_test import mann_whitney, smallest_p

Direction = Literal["up_is_good", "down_is_good", "neutral"]
Key = TypeVar("Key", bound=Hashable)


class JudgedMetric(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def direction(self) -> Direction: ...

    @property
    def kind(self) -> Literal["value", "count"]:
        """Whether the metric is a measured value or a count."""


M = TypeVar("M", bound=JudgedMetric)
M_co = TypeVar("M_co", bound=JudgedMetric, covariant=True)


@dataclass(frozen=True)
class ComparedMetric:
    name: str
    label: str
    direction: Direction
    kind: Literal["value", "count"] = "value"


# Every compared metric of a model, in the order of its tables.
COMPARED = (
    ComparedMetric("speedup", "Speedup", "up_is_good"),
    ComparedMetric("abs_latency_ms", "Latency", "down_is_good"),
    ComparedMetric("eager_latency_ms", "Eager latency", "down_is_good"),
    ComparedMetric("compilation_latency_s", "Compile time", "down_is_good"),
    ComparedMetric("warm_compilation_latency_s", "Warm compile time", "down_is_good"),
    ComparedMetric("cache_lookup_latency_us", "Cache lookup", "down_is_good"),
    ComparedMetric("dynamo_peak_mem_gb", "Peak memory", "down_is_good"),
    ComparedMetric("compression_ratio", "Peak memory ratio", "up_is_good"),
    ComparedMetric("eager_peak_mem_gb", "Eager peak memory", "down_is_good"),
    ComparedMetric("package_bytes", "Package size", "down_is_good"),
    ComparedMetric("export_latency_s", "Export time", "down_is_good"),
    ComparedMetric("load_latency_s", "Load time", "down_is_good"),
    ComparedMetric("second_process_latency_s", "First call in a second process", "down_is_good"),
    ComparedMetric("scaling_efficiency", "Scaling efficiency", "up_is_good"),
    ComparedMetric("quantized_error", "Quantized error", "down_is_good"),
    ComparedMetric("graph_breaks", "Graph breaks", "down_is_good", "count"),
    ComparedMetric("recompiles", "Recompiles", "down_is_good", "count"),
    ComparedMetric("unique_graph_breaks", "Graph break reasons", "down_is_good", "count"),
    ComparedMetric("unique_graphs", "Graphs", "neutral", "count"),
    ComparedMetric("calls_captured", "Operations captured", "neutral", "count"),
    ComparedMetric("fallbacks_to_eager", "Fallbacks to eager", "down_is_good", "count"),
    ComparedMetric("cudagraph_skips", "CUDA graph skips", "down_is_good", "count"),
)
# References: if eager mode changes, the machine or torch did, and no model is worse.
YARDSTICKS = ("eager_latency_ms", "eager_peak_mem_gb")
# A ratio, and the values of eager mode and the compiled model: together they show whether eager
# mode moved them.
SPEEDS = ("speedup", "eager_latency_ms", "abs_latency_ms")
MEMORIES = ("compression_ratio", "eager_peak_mem_gb", "dynamo_peak_mem_gb")
# Samples that show a metric's noise; of two names, the first ÷ the second, measured together.
SAMPLES: dict[str, tuple[str, ...]] = {
    "speedup": ("eager", "compiled"),
    "abs_latency_ms": ("compiled",),
    "eager_latency_ms": ("eager",),
    "compilation_latency_s": ("cold_compile_s",),
    "warm_compilation_latency_s": ("warm_compile_s",),
    "export_latency_s": ("export_s",),
    "load_latency_s": ("load_s",),
    "second_process_latency_s": ("second_process_s",),
    "dynamo_peak_mem_gb": ("compiled_peak_gb",),
    "eager_peak_mem_gb": ("eager_peak_gb",),
    "compression_ratio": ("eager_peak_gb", "compiled_peak_gb"),
}
# Medians of many repeats, even if these were not kept.
MEDIANS = ("speedup", "abs_latency_ms", "eager_latency_ms", "geomean_speedup", "scaling_efficiency")
# Exact after one measurement; any other number without samples was measured once.
EXACT = ("package_bytes", "quantized_error")
# A change up to this is noise, however certain: two starts of one program differ so much. Compiling
# varies more. Source: test-infra torchci/components/benchmark/compilers/common.tsx,
# RELATIVE_THRESHOLD
THRESHOLD, COMPILE_THRESHOLD = 0.05, 0.1
_COMPILE_TIMES = (
    *(
        "compilation_latency_s",
        "warm_compilation_latency_s",
        "cache_lookup_latency_us",
        "compile_s",
    ),
    *("export_latency_s", "load_latency_s", "second_process_latency_s"),
)
# asv's level: of 200 models that did not change, less than one looks changed.
# Source: airspeed-velocity/asv, asv/_stats.py, is_different
ALPHA = 0.002
MIN_SAMPLES = 3
CHANGED = ("worse", "changed", "better")  # verdicts beyond noise
LABELS = {
    "worse": "worse",
    "better": "better",
    "changed": "changed",
    "eager": "eager mode moved",
    "wrong": "wrong answer",
    "negligible": f"within {THRESHOLD:.0%}",
    "noise": "no clear difference",
    "single": "one sample each",
    "same": "unchanged",
}
METHODS = {
    "intervals": "95% intervals",
    "repeats": "Mann–Whitney U",
    "samples": "samples apart",
    "threshold": "threshold",
    "count": "count",
}
RULE = (
    f"A change above {THRESHOLD:.0%} (compile times {COMPILE_THRESHOLD:.0%}) is more than "
    "noise where the 95%"
    f" intervals lie apart, or Mann–Whitney's p is below {ALPHA:g}; of {MIN_SAMPLES} "
    "samples or more, where they lie"
    " further apart than either side is wide. What was measured once is neither better nor "
    "worse, nor is what moved"
    " because eager mode did, or what gives a wrong answer. A count is not noisy."
)


def get_threshold(metric: JudgedMetric) -> float:
    return COMPILE_THRESHOLD if metric.name in _COMPILE_TIMES else THRESHOLD


def find_direction(metric: JudgedMetric, base: float, new: float) -> str:
    if base == new or metric.direction == "neutral" or metric.name in YARDSTICKS:
        return "changed"
    return "better" if (new > base) == (metric.direction == "up_is_good") else "worse"


@dataclass(frozen=True)
class Measurement:
    value: float
    interval: tuple[float, float] | None = None
    samples: (
        Sequence[float] | None
    ) = ()  # None: a number from a file, with an unknown number of samples


class MeasuredSide(Protocol):
    """One side's measurements of a model. A metric that was not measured is missing from
    `values`.
    """

    @property
    def values(self) -> Mapping[str, float]:
        """Values by name in COMPARED."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """95% interval of the speedup."""

    @property
    def repeats(self) -> Mapping[str, Sequence[float]]:
        """Samples by name in SAMPLES."""

    @property
    def is_wrong(self) -> bool:
        """Whether the model's answer is known to be wrong."""


@dataclass(frozen=True)
class SideValues:
    values: Mapping[str, float]
    interval: tuple[float, float] | None = None
    repeats: Mapping[str, Sequence[float]] = field(default_factory=dict)
    is_wrong: bool = False


def is_wrong_answer(accuracy: object) -> bool:
    """Return whether an accuracy result is not correct; None was not checked."""
    return (
        isinstance(accuracy, str)
        and not accuracy.startswith("pass")
        and accuracy != "eager_variation"
    )


@dataclass(frozen=True)
class Verdict(Generic[M_co]):
    """The decision on one metric; `change` is relative to base, None if base is 0.

    `sample_counts` are of base and new, None if unknown; `spread_ratio` is the
    uncertainty: half the interval of new ÷ base, or the noise of the noisier side.
    """

    metric: M_co
    base: float
    new: float
    change: float | None
    word: str  # of LABELS
    method: str  # of METHODS
    reason: str = ""
    p_value: float | None = None
    ratio_interval: tuple[float, float] | None = None
    sample_counts: tuple[int | None, int | None] = (None, None)
    spread_ratio: float | None = None
    threshold: float = THRESHOLD  # the share that the change had to exceed

    @property
    def label(self) -> str:
        return (
            f"within {100 * self.threshold:g}%" if self.word == "negligible" else LABELS[self.word]
        )

    @property
    def basis(self) -> str:
        if self.method == "count":
            return "counted"
        known = any(count is not None for count in self.sample_counts)
        rests = describe_counts(self.sample_counts) if known else METHODS[self.method]
        rests += ", repeats not kept" if not known and self.method == "threshold" else ""
        spread = "" if self.spread_ratio is None else f", ±{100 * self.spread_ratio:.1f}%"
        return rests + spread + (": not judged" if self.word == "single" else "")

    @property
    def text(self) -> str:
        return self.basis if self.word == "single" else f"{self.label} ({self.basis})"


def describe_counts(counts: Sequence[int | None]) -> str:
    words = [
        "no known count"
        if count is None
        else f"{count} samples"
        if count > 1
        else "one sample"  # kept or not
        for count in counts
    ]
    if words[0] != words[1]:
        return f"{words[0]} on base, {words[1]} in new"
    return f"{words[0]} {'each' if counts[0] is None or counts[0] < 2 else 'a side'}"


def judge_sides(
    metrics: Iterable[M],
    base: MeasuredSide,
    new: MeasuredSide,
    thresholds: Mapping[str, float] | None = None,
) -> dict[str, Verdict[M]]:
    """Compare every metric that both sides measured, and clear changes of speed that eager mode
    explains.

    If the answer is wrong on a side, only counts are compared.
    """
    limits = thresholds or {}
    judged = (
        (metric.name, judge(metric, base, new, limits.get(metric.name))) for metric in metrics
    )
    verdicts = explain_by_eager({name: verdict for name, verdict in judged if verdict is not None})
    wrong = [
        side
        for side, is_wrong in (("on base", base.is_wrong), ("in new", new.is_wrong))
        if is_wrong
    ]
    reason = f"the answer is wrong {' and '.join(wrong)}: how fast it comes says nothing"
    return {
        name: replace(verdict, word="wrong", reason=reason)
        if wrong and verdict.metric.kind == "value"
        else verdict
        for name, verdict in verdicts.items()
    }


def judge(
    metric: M, base: MeasuredSide, new: MeasuredSide, threshold: float | None = None
) -> Verdict[M] | None:
    before, after = _read_measurement(metric, base), _read_measurement(metric, new)
    return None if before is None or after is None else decide(metric, before, after, threshold)


def judge_values(metric: M, base: float, new: float) -> Verdict[M]:
    return decide(metric, Measurement(base), Measurement(new))


_BESIDE_EAGER = (
    (SPEEDS, "speedup", "latency", "eager mode got slower", "eager mode got faster"),
    (MEMORIES, "ratio", "peak", "eager mode takes more memory", "eager mode takes less memory"),
)


def explain_by_eager(verdicts: Mapping[str, Verdict[M]]) -> dict[str, Verdict[M]]:
    """Clear the verdict on a change of speed or memory that eager mode explains, as after a change
    of machine, torch or model.

    Either the ratio changed and the compiled model's value did not, or compiled and eager changed
    together.
    """
    explained = dict(verdicts)
    for names, of_ratio, of_value, more, less in _BESIDE_EAGER:
        ratio, eager, compiled = (explained.get(name) for name in names)
        if ratio is None or eager is None or compiled is None or eager.word not in CHANGED:
            continue
        moved = more if eager.new > eager.base else less
        moved += "" if eager.change is None else f" ({100 * eager.change:+.1f}%)".replace("-", "−")
        if ratio.word in CHANGED and compiled.word not in CHANGED:
            reason = f"{moved}, the compiled model's {of_value} is {compiled.label}; {ratio.reason}"
            explained[ratio.metric.name] = replace(ratio, word="eager", reason=reason)
        goes_along = (compiled.new > compiled.base) == (eager.new > eager.base)
        if goes_along and compiled.word in CHANGED and ratio.word not in CHANGED:
            reason = f"{moved} as well, the {of_ratio} is {ratio.label}; {compiled.reason}"
            explained[compiled.metric.name] = replace(compiled, word="eager", reason=reason)
    return explained


def decide(
    metric: M, base: Measurement, new: Measurement, threshold: float | None = None
) -> Verdict[M]:
    """Return the verdict on a change of one metric; every comparison ends here.

    Counts are compared directly; intervals or samples determine the noise; medians without samples
    use the threshold. A value measured once on a side is never better or worse.
    """
    threshold = get_threshold(metric) if threshold is None else threshold
    before, after = base.value, new.value
    change = after / before - 1 if before > 0 else 0.0 if after == before else None
    is_count = metric.kind == "count"
    if before == after or is_count:
        word = "same" if before == after else find_direction(metric, before, after)
        return Verdict(metric, before, after, change, word, "count" if is_count else "threshold")
    if change is None or after <= 0:
        reason = "one side is not above 0, so there is no ratio"
        return Verdict(
            metric, before, after, change, "noise", "threshold", reason, threshold=threshold
        )
    counts = _count_samples(metric, base), _count_samples(metric, new)
    plain = Verdict(
        metric,
        before,
        after,
        change,
        "noise",
        "threshold",
        sample_counts=counts,
        threshold=threshold,
    )
    if base.interval and new.interval:
        return _decide_by_intervals(plain, base.interval, new.interval)
    base_samples, new_samples = base.samples or (), new.samples or ()
    fewest = min(len(base_samples), len(new_samples))
    if fewest >= MIN_SAMPLES:
        plain = replace(plain, spread_ratio=_find_spread(base_samples, new_samples))
    if fewest and smallest_p(len(base_samples), len(new_samples)) < ALPHA:
        return _decide_by_repeats(plain, base_samples, new_samples)
    if fewest >= MIN_SAMPLES:
        return _decide_by_samples(plain, base_samples, new_samples)
    reason = f"a change up to {100 * threshold:g}% is taken as noise"
    if abs(change) <= threshold:
        return replace(plain, reason=reason)
    if any(count is not None and count < MIN_SAMPLES for count in counts):
        reason = f"{describe_counts(counts)}; a verdict takes {MIN_SAMPLES} each"
        return replace(plain, word="single", reason=reason)
    return _decide_by_one_side(
        replace(plain, word=find_direction(metric, before, after), reason=reason), base, new
    )


def decide_overall(
    metric: M,
    base: float,
    new: float,
    verdicts: Mapping[str, int] | None = None,
    noise: float | None = None,
    threshold: float | None = None,
    latency: float | None = None,
) -> Verdict[M]:
    """Return the verdict on a mean or sum over models, from the verdicts on each.

    `verdicts` counts the models by verdict; if None, only the threshold decides. `noise` is the
    uncertainty of log(new ÷ base), from `find_noise`. A mean is worse if it changed by more than
    the threshold and a model or its own interval is worse; with one model, it has that model's
    verdict. `latency` is new ÷ base of compiled latency: if it changed by less than half of what is
    significant for the speedup, eager mode changed.
    """
    plain = decide(
        metric, Measurement(base, samples=None), Measurement(new, samples=None), threshold
    )
    plain = replace(plain, spread_ratio=noise and math.expm1(noise))
    counts = verdicts or {}
    total = sum(counts.values())
    models = (
        f"{counts.get(plain.word, 0)} of {total} {'model' if total == 1 else 'models'} "
        f"{plain.label}"
    )
    if plain.word not in CHANGED or (verdicts is None and noise is None):
        within = plain.method == "threshold" and plain.word == "noise" and base > 0 and new > 0
        return replace(plain, word="negligible") if within else plain
    if plain.method == "count" or counts.get(plain.word):
        return replace(plain, reason=models if total else plain.reason)
    if counts.get("eager"):
        return replace(
            plain,
            word="eager",
            reason=f"{counts['eager']} of {total} changed with eager mode, none alone",
        )
    if noise is not None and total != 1:  # the only model's intervals overlap
        is_apart = abs(math.log(new / base)) > noise
        if is_apart and latency is not None and -math.log(latency) / math.log(new / base) < 0.5:
            change = f"{100 * (latency - 1):+.1f}%".replace("-", "−")
            reason = f"the compiled models' latency changed by {change}: the rest is eager mode's"
            return replace(plain, word="eager", method="intervals", reason=reason)
        reason = f"the models' 95% intervals together{'' if is_apart else ' span no change'}"
        return replace(
            plain, word=plain.word if is_apart else "noise", method="intervals", reason=reason
        )
    if counts.get("single"):
        return replace(
            plain,
            word="single",
            reason=f"{counts['single']} of {total} measured once, none {plain.word}",
        )
    return replace(
        plain, word="noise", method=plain.method if noise is None else "intervals", reason=models
    )


def find_noise(intervals: Sequence[tuple[float, float] | None]) -> float | None:
    """Return the uncertainty of the logarithm of a ratio of two geomeans, from the models' 95%
    intervals.

    Models vary independently, so variances of logarithms add. None if an interval is missing.
    """
    widths = []
    for interval in intervals:
        if interval is None or not 0 < interval[0] <= interval[1]:
            return None
        widths.append(math.log(interval[1] / interval[0]) / 2)
    return 2 * math.hypot(*widths) / len(widths) if widths else None


def compare_counts(base: Mapping[Key, int], new: Mapping[Key, int]) -> dict[Key, str]:
    """Return new, worse, resolved, less or unchanged for each key."""
    return {key: _compare_count(base.get(key, 0), new.get(key, 0)) for key in {**base, **new}}


def _compare_count(base: int, new: int) -> str:
    if not base or not new:
        return "new" if new else "resolved"
    return "unchanged" if base == new else "worse" if new > base else "less"


def count_models(verdicts_by_model: Iterable[Collection[str]]) -> dict[str, int]:
    """Count models by the verdicts on all their metrics: worse, better, both or neither."""
    model_counts = Counter(_combine_words(of_model) for of_model in verdicts_by_model)
    return {word: model_counts[word] for word in ("worse", "better", "both", "neither")}


def describe_models(counts: Mapping[str, int]) -> str:
    text = (
        f"{counts['worse'] + counts['both']} worse, {counts['better']} better, "
        f"{counts['neither']} neither"
    )
    return text + (f"; {counts['both']} of the worse also better in one" if counts["both"] else "")


def _combine_words(verdicts: Collection[str]) -> str:
    worse, better = "worse" in verdicts, "better" in verdicts
    return "both" if worse and better else "worse" if worse else "better" if better else "neither"


def measure_noise(repeats: Sequence[float]) -> float | None:
    """Return the spread of samples: the median distance from their median, relative to it; None for
    fewer than 3.

    1.4826 makes it the standard deviation for Gaussian noise. Source: Rousseeuw and Croux 1993, the
    median absolute deviation.
    """
    if len(repeats) < MIN_SAMPLES:
        return None
    middle = median(repeats)
    if middle <= 0:
        return None
    return 1.4826 * median([abs(value - middle) for value in repeats]) / middle


def pick_samples(metric: JudgedMetric, repeats: Mapping[str, Sequence[float]]) -> Sequence[float]:
    samples = [repeats.get(name, ()) for name in SAMPLES.get(metric.name, ())]
    if len(samples) < 2:
        return samples[0] if samples else ()
    over, under = samples
    if len(over) != len(under) or min(under, default=0) <= 0:
        return ()
    return [
        upper / lower for upper, lower in zip(over, under)
    ]  # measured in turns: each pair is a ratio


def _read_measurement(metric: JudgedMetric, side: MeasuredSide) -> Measurement | None:
    value = side.values.get(metric.name)
    if value is None:
        return None
    return Measurement(
        value,
        side.interval if metric.name == "speedup" else None,
        pick_samples(metric, side.repeats),
    )


def _count_samples(metric: JudgedMetric, side: Measurement) -> int | None:
    if side.samples is None or (not side.samples and metric.name in (*MEDIANS, *EXACT)):
        return None
    return len(side.samples)


def _find_spread(base: Sequence[float], new: Sequence[float]) -> float | None:
    return max(
        (noise for side in (base, new) if (noise := measure_noise(side)) is not None), default=None
    )


def _decide_by_intervals(
    plain: Verdict[M], base: tuple[float, float], new: tuple[float, float]
) -> Verdict[M]:
    apart = base[1] < new[0] or new[1] < base[0]
    reason = (
        f"{base[0]:.3f} to {base[1]:.3f} and {new[0]:.3f} to {new[1]:.3f} "
        f"{'lie apart' if apart else 'overlap'}"
    )
    ratio = (new[0] / base[1], new[1] / base[0]) if base[0] > 0 and base[1] > 0 else None
    noise = find_noise((base, new))
    plain = replace(plain, method="intervals", reason=reason, ratio_interval=ratio)
    return replace(
        plain, word=_describe_certainty(plain, apart), spread_ratio=noise and math.expm1(noise)
    )


def _decide_by_repeats(
    plain: Verdict[M], base: Sequence[float], new: Sequence[float]
) -> Verdict[M]:
    test = mann_whitney(base, new)
    reason = f"p = {test.p_value:.2g} over {len(base)} and {len(new)} repeats"
    word = _describe_certainty(plain, test.p_value < ALPHA)
    return replace(plain, word=word, method="repeats", reason=reason, p_value=test.p_value)


def _decide_by_samples(
    plain: Verdict[M], base: Sequence[float], new: Sequence[float]
) -> Verdict[M]:
    gap = max(min(new) - max(base), min(base) - max(new))
    is_apart = gap > max(max(base) - min(base), max(new) - min(new))
    is_changed = is_apart and plain.change is not None and abs(plain.change) > plain.threshold
    ranges = " and ".join(f"{min(samples):.3g} to {max(samples):.3g}" for samples in (base, new))
    reason = (
        f"{len(base)} and {len(new)} samples, {ranges}{'' if is_apart else ', not clearly apart'}"
    )
    word = find_direction(plain.metric, plain.base, plain.new) if is_changed else "noise"
    return replace(plain, word=word, method="samples", reason=reason)


def _decide_by_one_side(plain: Verdict[M], base: Measurement, new: Measurement) -> Verdict[M]:
    own, bare = (base, new.value) if base.interval or base.samples else (new, base.value)
    samples = own.samples or (own.value,)
    low, high = own.interval or (min(samples), max(samples))
    margin = 0.0 if own.interval else high - low
    spread = max(high / own.value - 1, 1 - low / own.value) or None
    if not low - margin <= bare <= high + margin:
        return replace(plain, spread_ratio=spread)
    reason = f"{bare:.3g} is not clearly apart from {low:.3g} to {high:.3g}"
    return replace(plain, word="noise", spread_ratio=spread, reason=reason)


def _describe_certainty(plain: Verdict[M], differs: bool) -> str:
    if not differs:
        return "noise"
    if plain.change is not None and abs(plain.change) > plain.threshold:
        return find_direction(plain.metric, plain.base, plain.new)
    return (
        "negligible" if plain.metric.name in MEDIANS else "noise"
    )  # samples of one process: two processes differ by more
