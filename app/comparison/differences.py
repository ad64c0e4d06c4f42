"""Comparison of two sides: models, breaks and causes, totals, functions, environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

from compileboard.app.benchmarks.metrics import Metric
from compileboard.app.comparison.environment import (
    REFUSES,
    WARNS,
    describe_differences,
    diff_environment,
    diff_settings,
)
from compileboard.app.comparison.model import (
    COMPARED,
    TOTALS,
    WORDS,
    ComparedReasons,
    ComparedSide,
    Comparison,
    Key,
    MetricDelta,
    MetricSum,
    ModelPair,
    ReasonChange,
)
from compileboard.app.comparison.pairs import describe_entry, list_shown, pair_entries
from compileboard.app.comparison.queries import DistinctItem, DistinctReason, FunctionCost
from compileboard.collectors.contract.verdicts import (
    compare_counts,
    decide_overall,
    find_noise,
    judge_values,
)
from compileboard.collectors.store.rollups import geomean


def diff_distinct(
    base: Sequence[DistinctItem] | None,
    new: Sequence[DistinctItem] | None,
    comparable: Mapping[Key, frozenset[str]],
    name: Callable[[Key], str],
    lack: str = "torch was not recorded {}: there are only numbers",
) -> ComparedReasons:
    """Compare distinct items per model if the tasks of both sides name it, else over the whole
    side.

    Items that only one side measured are left out and counted, neither new nor resolved.
    """
    if base is None or new is None:
        where = "on either side" if base is new else "on base" if base is None else "in new"
        return ComparedReasons(lack.format(where), 0, ())
    tells = [any(item.model is not None for item in side) for side in (base, new)]
    by_model = all(tells) or (any(tells) and not (base and new))
    ours, theirs = (
        [item for item in side if not by_model or _is_comparable(item, comparable)]
        for side in (base, new)
    )
    left_out = len(base) + len(new) - len(ours) - len(theirs)
    before, after = (Counter[tuple[Key | None, str]]() for _side in "ab")
    items: dict[tuple[Key | None, str], DistinctItem] = {}
    for side, count in ((theirs, after), (ours, before)):
        for item in side:
            key = (item.model if by_model else None, item.fingerprint)
            items.setdefault(key, item)
            count[key] += item.count
    words = compare_counts(before, after)
    changes = [
        ReasonChange(
            **{part.name: getattr(item, part.name) for part in fields(DistinctReason)},
            model=None if key[0] is None else name(key[0]),
            word="by_design" if item.is_by_design and words[key] != "unchanged" else words[key],
            base_count=before[key],
            new_count=after[key],
            key=item.model,
        )
        for key, item in items.items()
    ]
    order = tuple(WORDS)
    changes.sort(
        key=lambda change: (
            order.index(change.word),
            change.model or "",
            -max(change.base_count, change.new_count),
            change.fingerprint,
        )
    )
    return ComparedReasons(None, left_out, tuple(changes))


def _is_comparable(item: DistinctItem, comparable: Mapping[Key, frozenset[str]]) -> bool:
    if item.model is None:
        return True
    shared = comparable.get(item.model)
    return shared is not None and (
        not shared or item.experiment is None or item.experiment in shared
    )


FunctionPair = tuple["FunctionCost | None", "FunctionCost | None"]


def compare(base: ComparedSide, new: ComparedSide, anyway: bool = False) -> Comparison:
    paired = pair_entries(base.entries, new.entries, anyway)
    differences = diff_environment(base, new)
    refused, warnings = (describe_differences(differences, weight) for weight in (REFUSES, WARNS))
    if anyway:
        warnings = (*(f"compared anyway: {reason}" for reason in refused), *warnings)
        refused = ()
    entries = [*base.entries, *new.entries]
    named = {entry.key: entry for entry in entries}
    shown = list_shown(entries)

    def name(key: Key) -> str:
        return " · ".join(
            word for word in (named[key].model, describe_entry(named[key], shown)) if word
        )

    comparable = _share_experiments(base, new)
    return Comparison(
        base=base,
        new=new,
        anyway=anyway,
        **vars(paired),
        sums=sum_metrics(paired.pairs),
        breaks=diff_distinct(base.breaks, new.breaks, comparable, name),
        causes=diff_distinct(base.causes, new.causes, comparable, name),
        rerecordings=diff_distinct(
            base.rerecordings,
            new.rerecordings,
            comparable,
            name,
            "no CUDA graph was recorded {}",
        ),
        totals=_compare_totals(base, new, bool(refused)),
        functions=()
        if refused
        else _pair_functions(base.functions, new.functions),  # their times are the machine's
        environment=differences,
        settings=diff_settings(base, new),
        refused=refused,
        warnings=warnings,
    )


def _share_experiments(base: ComparedSide, new: ComparedSide) -> dict[Key, frozenset[str]]:
    ours, theirs = (
        {entry.key: entry.experiments for entry in side.entries if entry.status == "measured"}
        for side in (base, new)
    )
    experiments = {}
    for key in ours.keys() & theirs.keys():
        shared = frozenset(ours[key]) & frozenset(theirs[key])
        if shared or not (ours[key] and theirs[key]):
            experiments[key] = shared
    return experiments


def sum_metrics(pairs: Sequence[ModelPair]) -> tuple[MetricSum, ...]:
    return tuple(
        metric_sum for metric in COMPARED if (metric_sum := _sum_metric(metric, pairs)) is not None
    )


def _sum_metric(metric: Metric, pairs: Sequence[ModelPair]) -> MetricSum | None:
    measured = [(pair, pair.deltas[metric.name]) for pair in pairs if metric.name in pair.deltas]
    if not measured:
        return None
    verdicts, methods = _count_verdicts(measured)
    if metric.kind == "count":
        sums = (
            sum(delta.base for _pair, delta in measured),
            sum(delta.new for _pair, delta in measured),
        )
        whole = decide_overall(metric, *sums, verdicts)
        return MetricSum(metric, len(measured), *sums, whole.change, whole, verdicts, methods)
    # The speed of a wrong answer is meaningless; a ratio needs both sides above 0.
    usable = [
        (pair, delta)
        for pair, delta in measured
        if delta.word != "wrong" and min(delta.base, delta.new) > 0
    ]
    before, after = (
        geomean([delta.base for _pair, delta in usable]),
        geomean([delta.new for _pair, delta in usable]),
    )
    if before is None or after is None:
        return MetricSum(metric, len(usable), before, after, None, None, verdicts, methods)
    verdicts, methods = _count_verdicts(usable)  # a mean is judged by its own models
    intervals = [side.interval for pair, _delta in usable for side in (pair.base, pair.new)]
    noise = find_noise(intervals) if metric.name == "speedup" else None
    latencies = [
        delta
        for pair, _delta in usable
        if (delta := pair.deltas.get("abs_latency_ms")) and delta.base > 0
    ]
    is_speed = metric.name == "speedup" and len(latencies) == len(usable)
    latency = (
        (geomean([delta.new / delta.base for delta in latencies]) or None) if is_speed else None
    )
    overall = decide_overall(metric, before, after, verdicts, noise, latency=latency)
    return MetricSum(
        metric, len(usable), before, after, after / before - 1, overall, verdicts, methods
    )


def _count_verdicts(
    deltas: Sequence[tuple[ModelPair, MetricDelta]],
) -> tuple[Counter[str], Counter[str]]:
    return Counter(delta.word for _pair, delta in deltas), Counter(
        delta.method for _pair, delta in deltas
    )


def _compare_totals(
    base: ComparedSide, new: ComparedSide, is_refused: bool
) -> tuple[MetricDelta, ...]:
    models = [sorted(map(str, (entry.key for entry in side.entries))) for side in (base, new)]
    if len(base.runs) != len(new.runs) or models[0] != models[1]:
        return ()
    return tuple(
        judge_values(metric, base.totals[metric.name], new.totals[metric.name])
        for metric in TOTALS
        if metric.name in base.totals
        and metric.name in new.totals
        and (metric.kind == "count" or not is_refused)
    )


def _pair_functions(
    base: Sequence[FunctionCost], new: Sequence[FunctionCost]
) -> tuple[FunctionPair, ...]:
    ours, theirs = (
        {(function.file, function.name): function for function in side} for side in (base, new)
    )
    pairs = [(ours.get(key), theirs.get(key)) for key in {**ours, **theirs}]

    def away(pair: FunctionPair) -> tuple[int, str, str]:
        times = [(function.compile_us if function else None) or 0 for function in pair]
        function = pair[1] or pair[0]
        assert function is not None  # each key is on one side at least
        return (-abs(times[1] - times[0]), function.file, function.name)

    return tuple(sorted(pairs, key=away))
