"""Pairs of models that both sides measured, and why others are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from compileboard.app.benchmarks.labels import REASONS, describe_part, split_backend
from compileboard.app.comparison.model import (
    COMPARED,
    MACHINE_FIELDS,
    MODEL_FIELDS,
    ExcludedEntry,
    Key,
    ModelPair,
    ModelResult,
    PairedModels,
)
from compileboard.collectors.contract.verdicts import judge_sides

EAGER_MOVED = {
    "speedup": "speedup changed because eager mode did",
    "abs_latency_ms": "latency changed with eager mode, speedup unchanged",
    "compression_ratio": "peak memory ratio changed because eager mode's peak did",
    "dynamo_peak_mem_gb": "peak memory changed with eager mode's, ratio unchanged",
}
Entry = TypeVar("Entry")
Pairs = list[tuple[Entry, Entry]]


def pair_entries(
    base: Sequence[ModelResult], new: Sequence[ModelResult], anyway: bool = False
) -> PairedModels:
    (together, more, other_batch), left, right = match(
        base, new, MODEL_FIELDS, lambda result, name: result.series.get(name)
    )
    pairs: list[ModelPair] = []
    excluded: list[ExcludedEntry] = []
    for base_result, new_result in (*together, *more):
        reason, kind = _find_obstacle(base_result, new_result, anyway)
        pair = None if reason else _make_pair(base_result, new_result)
        if pair is None:
            excluded.append(
                ExcludedEntry(
                    base_result, new_result, reason or "no number that both sides measured", kind
                )
            )
        else:
            pairs.append(pair)
    for base_result, new_result in other_batch:
        old_size, new_size = _format_batch_size(base_result), _format_batch_size(new_result)
        sizes = f"batch size {old_size} on base, {new_size} in new"
        excluded.append(ExcludedEntry(base_result, new_result, sizes, "quiet"))
    return PairedModels(
        tuple(sorted(pairs, key=_pair_sort_key)),
        tuple(sorted(left, key=_pair_sort_key)),
        tuple(sorted(right, key=_pair_sort_key)),
        tuple(sorted(excluded, key=_pair_sort_key)),
    )


def list_shown(entries: Iterable[ModelResult]) -> list[str]:
    seen: dict[str, set[object]] = {}
    for entry in entries:
        for name in MODEL_FIELDS:
            seen.setdefault(name, set()).add(entry.series.get(name))
    return [name for name, values in seen.items() if name != "model" and len(values) > 1]


def describe_entry(entry: ModelResult, shown: Iterable[str]) -> str:
    words = []
    for name in shown:
        value = entry.series.get(name)
        if name == "dynamic":
            words.append("dynamic shapes" if value else "static shapes")
        elif name == "backend" and value:
            words += map(describe_part, split_backend(str(value)))
        elif value is not None:
            words.append(
                f"{name.replace('_', ' ')} {value}"
                if name.endswith("_format_batch_size")
                else str(value)
            )
    return " · ".join(words)


def match(
    base: Iterable[Entry],
    new: Iterable[Entry],
    fields: Sequence[str],
    read: Callable[[Entry, str], Any],
) -> tuple[tuple[Pairs[Entry], Pairs[Entry], Pairs[Entry]], list[Entry], list[Entry]]:
    """Pair the entries of both sides with equal fields; return the pairs and the rest of each side.

    The pairs are in three lists: same machine, different machines, different batch sizes.
    """
    batchless = [name for name in fields if name != "batch_size"]
    together, left, right = _match_alike(base, new, (*fields, *MACHINE_FIELDS), read)
    more, left, right = _match_alike(left, right, fields, read)
    others, left, right = _match_alike(left, right, batchless, read)
    unknown = [pair for pair in others if None in (read(entry, "batch_size") for entry in pair)]
    other_batch = [pair for pair in others if pair not in unknown]
    return (together, [*more, *unknown], other_batch), left, right


def _match_alike(
    base: Iterable[Entry],
    new: Iterable[Entry],
    fields: Sequence[str],
    read: Callable[[Entry, str], Any],
) -> tuple[Pairs[Entry], list[Entry], list[Entry]]:
    def key(entry: Entry) -> Key:
        return tuple(read(entry, name) for name in fields)

    waiting: dict[Key, list[Entry]] = {}
    for entry in new:
        waiting.setdefault(key(entry), []).append(entry)
    together, left = [], []
    for entry in base:
        candidates = waiting.get(key(entry))
        if candidates:
            together.append((entry, candidates.pop(0)))
        else:
            left.append(entry)
    return together, left, [entry for rest in waiting.values() for entry in rest]


def _find_obstacle(base: ModelResult, new: ModelResult, anyway: bool) -> tuple[str, str]:
    statuses = [
        f"{_format_status(result)} {where}"
        for result, where in ((base, "on base"), (new, "in new"))
    ]
    if "measured" in (base.status, new.status) and base.status != new.status:
        is_lost = base.status == "measured"
        kind = ("bad" if new.status == "failed" else "quiet") if is_lost else "good"
        return f"{statuses[0]}, {statuses[1]}", kind
    if base.status != "measured":
        return f"{statuses[0]}, {statuses[1]}", "quiet"
    differing = [
        f"{name} {ours} on base, {theirs} in new"
        for name, ours, theirs in zip(MACHINE_FIELDS, base.machine, new.machine)
        if ours and theirs and ours != theirs
    ]
    return ("" if anyway else "; ".join(differing)), "quiet"


def _format_status(entry: ModelResult) -> str:
    word = entry.status.replace("_", " ")
    reason = REASONS.get(entry.reason or "", entry.reason or "")
    return f"{word} ({reason})" if reason and entry.status != "measured" else word


def _make_pair(base: ModelResult, new: ModelResult) -> ModelPair | None:
    verdicts = judge_sides(COMPARED, base, new)
    if not verdicts and not (base.accuracy and new.accuracy):
        return None
    accuracy = ""
    if base.accuracy and new.accuracy and base.is_wrong != new.is_wrong:
        accuracy = "broke" if new.is_wrong else "fixed"
    unknown = [
        name
        for name, ours, theirs in zip(MACHINE_FIELDS, base.machine, new.machine)
        if ours != theirs
    ]
    warnings = [f"not the same {' and '.join(unknown)} on both sides"] if unknown else []
    warnings += [
        EAGER_MOVED[name]
        for name in EAGER_MOVED
        if name in verdicts and verdicts[name].word == "eager"
    ]
    return ModelPair(base, new, verdicts, accuracy, "; ".join(warnings))


def _format_batch_size(entry: ModelResult) -> str:
    return str(entry.series.get("batch_size") or "not recorded")


def _pair_sort_key(model_pair: ModelPair | ModelResult | ExcludedEntry) -> tuple[str, ...]:
    entry = model_pair if isinstance(model_pair, ModelResult) else model_pair.new
    return (entry.model.lower(), *(str(value) for value in (*entry.key, *entry.machine)))
