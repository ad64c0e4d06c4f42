"""Changes between two sides, by model and in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.benchmarks.labels import REASONS
from compileboard.app.benchmarks.metrics import format_value
from compileboard.app.benchmarks.series import SEPARATOR
from compileboard.app.comparison.model import (
    MACHINE_FIELDS,
    MODEL_FIELDS,
    Comparison,
    EnvironmentDifference,
    ExcludedEntry,
    MetricDelta,
    MetricSum,
    ModelPair,
    ModelResult,
    PairedModels,
)
from compileboard.app.comparison.pairs import describe_entry, list_shown
from compileboard.app.core.format import format_count, format_plural
from compileboard.app.core.schema import one_of
from compileboard.collectors.contract.compile_labels import build_label

UNCHANGED = "environment unchanged"
FAILS, WORSE, CHANGED, BETTER = "fails", "worse", "changed", "better"
# Metrics by importance, with their names within a sentence. Only the first that changed of a group
# is mentioned: the others follow from it.
_WEIGHED: tuple[tuple[tuple[str, str], ...], ...] = (
    (("graph_breaks", "graph break"), ("unique_graph_breaks", "graph break reason")),
    (("recompiles", "recompile"),),
    (("fallbacks_to_eager", "fallback to eager"),),
    (("speedup", "speedup"), ("abs_latency_ms", "latency")),
    (("dynamo_peak_mem_gb", "peak memory"), ("compression_ratio", "peak memory ratio")),
    (
        ("compilation_latency_s", "compile time"),
        ("warm_compilation_latency_s", "warm compile time"),
    ),
    (("package_bytes", "package size"),),
    (("load_latency_s", "load time"), ("export_latency_s", "export time")),
    (("second_process_latency_s", "first call in a second process"),),
    (("scaling_efficiency", "scaling efficiency"),),
    (("quantized_error", "quantized error"),),
    (("cudagraph_skips", "CUDA graph skip"),),
)
# What `check` judges by default: only these make a model worse, so that PASS and a worse model
# exclude each other.
_DECIDING = (
    *(
        "graph_breaks",
        "speedup",
        "dynamo_peak_mem_gb",
        "compression_ratio",
        "compilation_latency_s",
    ),
    *("package_bytes", "load_latency_s", "scaling_efficiency", "quantized_error"),
)
_PLURALS = {
    "cache miss": "cache misses",
    "recompile limit": "recompile limits reached",
    "graph break reason": "graph break reasons",
    "fallback to eager": "fallbacks to eager",
    "CUDA graph recorded again": "CUDA graphs recorded again",
}
_LABELS_OF_TOTALS = {
    "graph_break_count": "graph break",
    "recompile_count": "recompile",
    "recompile_limit_count": "recompile limit",
    "failure_count": "failure",
    "cache_miss_count": "cache miss",
    "cudagraph_rerecording_count": "CUDA graph recorded again",
}
_MAX_MODELS, _MAX_PARTS = 3, 3
_ORDER = {FAILS: 0, WORSE: 1, CHANGED: 2, BETTER: 3}


@dataclass(frozen=True)
class ModelChange:
    """A model that changed beyond noise. `size` is the largest relative change of a time or
    size.
    """

    model: Annotated[str, "The model, with its configuration where the model alone is ambiguous."]
    kind: Annotated[
        str,
        one_of((FAILS, WORSE, CHANGED, BETTER)),
        "What became of it: `worse` in what `check` judges, or `changed`.",
    ]
    changes: Annotated[tuple[str, ...], "What changed, the heaviest first."]
    size: Annotated[float, "The model's largest relative change."]


@dataclass(frozen=True)
class ComparisonSummary:
    """What changed, in a sentence and by model."""

    tone: Annotated[
        str,
        one_of(("bad", "good", "quiet")),
        "Whether something became worse, only better, or neither.",
    ]
    sentence: Annotated[str, "What changed, the worst first."]
    models: Annotated[tuple[ModelChange, ...], "Models that changed, the worst first."]


def describe_changes(
    paired: PairedModels, base: Sequence[ModelResult], new: Sequence[ModelResult]
) -> str:
    models = list_model_changes(paired.pairs, paired.excluded, make_model_namer(base, new))
    return "; ".join(_describe_changes(models)) or describe_no_change(len(paired.pairs))


def summarize(comparison: Comparison) -> ComparisonSummary:
    describe = make_model_namer(comparison.base.entries, comparison.new.entries)
    models = list_model_changes(comparison.pairs, comparison.excluded, describe)
    parts = _describe_changes(models)
    told = " ".join(parts)
    new_breaks, new_causes, new_reasons = (
        diff.count("new")
        for diff in (comparison.breaks, comparison.causes, comparison.rerecordings)
    )
    if new_breaks and "graph break" not in told:
        parts.append(format_plural(new_breaks, "new graph break"))
    if new_causes and "recompile" not in told:
        parts.append(format_plural(new_causes, "new recompile cause"))
    if new_reasons:
        again = "to record CUDA graphs again"
        parts.append(format_plural(new_reasons, f"new reason {again}", f"new reasons {again}"))
    is_bad = bool(new_breaks or new_causes or new_reasons)
    is_bad = is_bad or any(change.kind in (FAILS, WORSE) for change in models)
    if not comparison.pairs:  # nothing was measured, so only what torch recorded is described
        moved = [delta for delta in comparison.totals if delta.word in (WORSE, BETTER)]
        parts += [
            _describe_delta(
                _LABELS_OF_TOTALS.get(total.metric.name, total.metric.label.lower()), total
            )
            for total in moved
        ]
    if comparison.is_unmatched:
        parts.insert(0, _describe_unmatched(comparison))
    parts = parts or [describe_no_change(len(comparison.pairs))]
    environment = _describe_environment(comparison.environment)
    if not (comparison.is_unmatched and environment == UNCHANGED):  # their settings differ
        parts.append(environment)
    sentence = "; ".join(parts)
    return ComparisonSummary("bad" if is_bad else "good" if models else "quiet", sentence, models)


def _describe_unmatched(comparison: Comparison) -> str:
    shown = list_shown([*comparison.only_base, *comparison.only_new])
    for entry in comparison.only_base:
        other = next((other for other in comparison.only_new if other.model == entry.model), None)
        if other is not None:
            parts = [describe_entry(side, shown).split(SEPARATOR) for side in (entry, other)]
            apart = [
                [part for part in own if part not in rest] for own, rest in (parts, reversed(parts))
            ]
            change = " → ".join(SEPARATOR.join(words) or "without" for words in apart)
            return f"No model was measured alike on both sides: {entry.model} {change}"
    return "No model was measured on both sides"


def make_model_namer(
    base: Sequence[ModelResult], new: Sequence[ModelResult]
) -> Callable[[ModelResult], str]:
    shown = list_shown((*base, *new))
    counts = [Counter(entry.model for entry in entries) for entries in (base, new)]

    def describe(entry: ModelResult) -> str:
        is_alone = all(count[entry.model] <= 1 for count in counts)
        return (
            entry.model if is_alone else build_label(entry.model, describe_entry(entry, shown), "")
        )

    return describe


def list_model_changes(
    pairs: Iterable[ModelPair],
    excluded: Iterable[ExcludedEntry],
    describe: Callable[[ModelResult], str],
) -> tuple[ModelChange, ...]:
    changes = []
    for exclusion in excluded:
        if exclusion.kind == "bad":
            reason = exclusion.new.reason or "no reason recorded"
            told = (REASONS.get(reason, reason),)
            changes.append(ModelChange(describe(exclusion.new), FAILS, told, 0.0))
    changes += [
        change
        for pair in pairs
        if (change := _summarize_pair(pair, describe(pair.new))) is not None
    ]
    return tuple(
        sorted(changes, key=lambda change: (_ORDER[change.kind], -change.size, change.model))
    )


def _summarize_pair(pair: ModelPair, name: str) -> ModelChange | None:
    if pair.accuracy == "broke":
        return ModelChange(
            name, FAILS, (f"accuracy {pair.base.accuracy} → {pair.new.accuracy}",), 0.0
        )
    told = [delta for group in _WEIGHED if (delta := _choose_headline(pair, group)) is not None]
    fixed = (
        [f"accuracy {pair.base.accuracy} → {pair.new.accuracy}"] if pair.accuracy == "fixed" else []
    )
    if not told and not fixed:
        return None
    worse = [delta.metric.name for _label, delta in told if delta.word == WORSE]
    kind = WORSE if set(worse) & set(_DECIDING) else CHANGED if worse else BETTER
    told.sort(key=lambda item: bool(worse) and item[1].word != WORSE)
    sizes = [
        abs(delta.change)
        for _label, delta in told
        if delta.change is not None and delta.metric.kind != "count"
    ]
    parts = (*fixed, *(_describe_delta(label, delta) for label, delta in told))
    return ModelChange(name, kind, parts, max(sizes, default=0.0))


def _choose_headline(
    pair: ModelPair, group: Sequence[tuple[str, str]]
) -> tuple[str, MetricDelta] | None:
    deltas = [(label, pair.deltas[name]) for name, label in group if name in pair.deltas]
    return next(((label, delta) for label, delta in deltas if delta.word in (WORSE, BETTER)), None)


def _describe_delta(label: str, delta: MetricDelta) -> str:
    if delta.metric.kind == "count":
        return (
            f"{_PLURALS.get(label, f'{label}s')} {format_count(delta.base)} → "
            f"{format_count(delta.new)}"
        )
    share = "" if delta.change is None else f" ({delta.change:+.0%})".replace("-", "−")
    return f"{label} {_format_value(delta, delta.base)} → {_format_value(delta, delta.new)}{share}"


def _format_value(delta: MetricDelta, value: float) -> str:
    return f"{value:.2f}×" if delta.metric.unit == "×" else format_value(delta.metric, value)


def describe_no_change(model_count: int) -> str:
    return (
        f"No change beyond noise in {format_plural(model_count, 'model')}"
        if model_count
        else "No change"
    )


def _describe_changes(models: Sequence[ModelChange]) -> list[str]:
    parts = []
    for kind, noun in (
        (FAILS, "fails"),
        (WORSE, "worse"),
        (CHANGED, "changed"),
        (BETTER, "better"),
    ):
        changes = [change for change in models if change.kind == kind]
        is_named = kind in (FAILS, WORSE) or len(changes) == len(models)
        named = changes[:_MAX_MODELS] if is_named else []
        says = " fails" if kind == FAILS else ""
        parts += [
            f"{change.model}{says}: {', '.join(change.changes[:_MAX_PARTS])}" for change in named
        ]
        if rest := len(changes) - len(named):
            words = "fail" if kind == FAILS and rest > 1 else noun
            parts.append(
                f"{rest} more {words}" if named else f"{format_plural(rest, 'model')} {words}"
            )
    return parts


def _describe_environment(differences: Sequence[EnvironmentDifference]) -> str:
    if not differences:
        return "environment not recorded"
    changed = [difference for difference in differences if difference.weight != "same"]
    words = [f"{part.name} {', '.join(part.base)} → {', '.join(part.new)}" for part in changed]
    return ", ".join(words) or UNCHANGED


SERIES = (*MODEL_FIELDS, *MACHINE_FIELDS)
_NUMBERS = (
    "base",
    "new",
    "change",
    "verdict",
    "method",
    "detail",
    "p_value",
    "ratio_low",
    "ratio_high",
)
COLUMNS = (*SERIES, "outcome", "reason", "base_run_id", "new_run_id", "metric", "unit", *_NUMBERS)


def comparison_row(comparison: Comparison) -> dict[str, Any]:
    return {
        "base": comparison.base,
        "new": comparison.new,
        "anyway": comparison.anyway,
        "refused": list(comparison.refused),
        "warnings": list(comparison.warnings),
        "common_count": len(comparison.pairs),
        "metrics": [_sum_row(metric_sum) for metric_sum in comparison.sums],
        "models": [_pair_row(pair) for pair in comparison.pairs],
        "only_base": [_entry_row(result) for result in comparison.only_base],
        "only_new": [_entry_row(result) for result in comparison.only_new],
        "excluded": [
            _paired_row(exclusion) | {"reason": exclusion.reason}
            for exclusion in comparison.excluded
        ],
        "graph_breaks": comparison.breaks,
        "recompile_causes": comparison.causes,
        "rerecording_reasons": comparison.rerecordings,
        "totals": {total.metric.name: _delta_row(total) for total in comparison.totals},
        "functions": [
            {"file": named.file, "function": named.name, "base": base, "new": new}
            for base, new in comparison.functions
            if (named := new or base)
        ],
        "environment": list(comparison.environment),
        "settings": list(comparison.settings),
        "summary": summarize(comparison),
    }


def list_lines(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for pair in comparison.pairs:
        head = _paired_row(pair) | {"outcome": "compared", "reason": pair.warning or None}
        for delta in pair.deltas.values():
            yield (
                head | {"metric": delta.metric.name, "unit": delta.metric.unit} | _delta_row(delta)
            )
        if pair.accuracy:
            words = {"base": pair.base.accuracy, "new": pair.new.accuracy}
            verdict = "worse" if pair.accuracy == "broke" else "better"
            yield head | {"metric": "accuracy", "verdict": verdict} | words
    for exclusion in comparison.excluded:
        yield _paired_row(exclusion) | {"outcome": "excluded", "reason": exclusion.reason}
    for outcome, entries in (
        ("only_base", comparison.only_base),
        ("only_new", comparison.only_new),
    ):
        for entry in entries:
            run = {f"{outcome.removeprefix('only_')}_run_id": entry.run_id}
            yield _series_row(entry) | run | {"outcome": outcome}


def _series_row(entry: ModelResult) -> dict[str, Any]:
    return {name: entry.series.get(name) for name in SERIES}


def _sum_row(compiled: MetricSum) -> dict[str, Any]:
    return {
        "metric": compiled.metric.name,
        "label": compiled.metric.label,
        "unit": compiled.metric.unit,
        "direction": compiled.metric.direction,
        "mean": "sum" if compiled.metric.kind == "count" else "geometric mean",
        "count": compiled.count,
        "base": compiled.base,
        "new": compiled.new,
        "change": compiled.change,
        "verdict": compiled.overall and compiled.overall.word,
        "basis": compiled.overall and compiled.overall.reason,
        "verdicts": dict(compiled.verdicts),
        "methods": dict(compiled.methods),
    }


def _delta_row(compiled: MetricDelta) -> dict[str, Any]:
    low, high = compiled.ratio_interval or (None, None)
    numbers = (
        compiled.base,
        compiled.new,
        compiled.change,
        compiled.word,
        compiled.method,
        compiled.reason,
        compiled.p_value,
        low,
        high,
    )
    return dict(zip(_NUMBERS, numbers)) | {"basis": compiled.basis}


def _pair_row(compiled: ModelPair) -> dict[str, Any]:
    return _paired_row(compiled) | {
        "base_accuracy": compiled.base.accuracy,
        "new_accuracy": compiled.new.accuracy,
        "accuracy_change": compiled.accuracy or None,
        "warning": compiled.warning or None,
        "metrics": {name: _delta_row(delta) for name, delta in compiled.deltas.items()},
    }


def _paired_row(pair: ModelPair | ExcludedEntry) -> dict[str, Any]:
    runs = {"base_run_id": pair.base.run_id, "new_run_id": pair.new.run_id}
    return _series_row(pair.new) | runs


def _entry_row(compiled: ModelResult) -> dict[str, Any]:
    return _series_row(compiled) | {
        "run_id": compiled.run_id,
        "status": compiled.status,
        "reason": compiled.reason,
    }
