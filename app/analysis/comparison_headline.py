"""A comparison in a few numbers, the same on the page and in reports."""

from __future__ import annotations

from typing import NamedTuple

from compileboard.app.analysis.comparison_model import Comparison, Delta, DistinctDiff
from compileboard.app.analysis.comparison_table import list_verdicts, show_change, show_share, show_value
from compileboard.app.format import format_count, format_plural

# Of metrics over all models: name, label, what the number is.
_MEANS = (
    ("speedup", "Geomean speedup", "over"),
    ("compilation_latency_s", "Compile time, cold", "geometric mean of"),
    ("dynamo_peak_mem_gb", "Peak memory", "compiled, geometric mean of"),
)


class Headline(NamedTuple):
    """Hold one headline number; `place` is the part of the page that has the rest, `metric` what it shows there."""

    label: str
    value: str
    note: str
    place: str = ""
    metric: str = ""


def list_headlines(found: Comparison) -> list[Headline]:
    """List the numbers that come first."""
    tiles = _models(found)
    for name, label, what in _MEANS:
        total = found.sum_of(name)
        if total is not None:
            values = f"{show_value(total.metric, total.base)} → {show_value(total.metric, total.new)}"
            note = f"{values}, {what} {format_plural(total.count, 'model')}"
            tiles.append(Headline(label, show_share(total.change), note, "models", name))
    if not found.pairs:
        tiles += [_total(it) for it in found.totals if it.metric.name in ("compile_s", "compile_count")]
    tiles.append(_distinct("Graph breaks", "breaks", found.breaks))
    tiles.append(_distinct("Recompile causes", "causes", found.causes))
    return tiles


def _models(found: Comparison) -> list[Headline]:
    if not found.base.entries and not found.new.entries:
        return []
    left = f"only on base {len(found.only_base)}, only in new {len(found.only_new)}, excluded {len(found.excluded)}"
    place = "left-out" if found.only_base or found.only_new or found.excluded else ""
    tiles = [Headline("Models compared", format_count(len(found.pairs)), left, place), *_failures(found)]
    if found.pairs:
        counts = list_verdicts(found.pairs)
        note = f"{counts['better']} better, {counts['neither']} neither, over all metrics"
        if counts["both"]:
            note += f"; {counts['both']} of the worse also better in one"
        tiles.append(Headline("Models that changed", f"{counts['worse'] + counts['both']} worse", note))
    return tiles


def _failures(found: Comparison) -> list[Headline]:
    """Say which models fail in new alone, or on base alone: the numbers of what both measured know nothing of them."""
    lost = [it.model for it in found.excluded if it.kind == "bad"]
    lost += [it.model for it in found.pairs if it.accuracy == "broke"]
    back = sum(it.kind == "good" and it.base.status == "failed" for it in found.excluded)
    back += sum(it.accuracy == "fixed" for it in found.pairs)
    if not lost and not back:
        return []
    named = ", ".join(it[:60] for it in lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
    note = "; ".join(filter(None, (named, f"{back} no longer" if back else "")))
    return [Headline("Newly failing", format_count(len(lost)), note, "left-out" if found.excluded else "models")]


def _total(it: Delta) -> Headline:
    values = f"{show_value(it.metric, it.base)} → {show_value(it.metric, it.new)}, of whole runs"
    return Headline(it.metric.label, show_change(it), values, "totals")


def _distinct(label: str, place: str, diff: DistinctDiff) -> Headline:
    if diff.lacks:
        return Headline(label, "–", diff.lacks, place)
    note = f"{diff.count('resolved')} resolved, {diff.count('worse')} more often, {diff.count('unchanged')} unchanged"
    return Headline(label, f"{format_count(diff.count('new'))} new", note, place)
