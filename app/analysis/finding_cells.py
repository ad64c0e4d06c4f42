"""What a table's cells say of a finding."""

from __future__ import annotations

from compileboard.app.analysis.finding_words import find_metric_of
from compileboard.app.analysis.metrics import PASSES, format_value
from compileboard.app.format import format_percent
from compileboard.app.queries.findings import Finding


def describe_what(it: Finding) -> str:
    """Name what of a subject changed: speedup; accuracy and failures; no longer measured."""
    metric = find_metric_of(it)
    if it.kind == "vanished":
        return "no longer measured"
    if metric is PASSES:
        return "fails" if it.direction == "worse" else "passes"
    return metric.label.lower() + (", little by little" if it.kind == "drift" else "")


def describe_values(it: Finding) -> str:
    """Write the value before and after: 1.420× → 1.245×."""
    metric = find_metric_of(it)
    if it.kind == "vanished":
        return "measured → gone"
    if metric is PASSES:
        return "passed → fails" if it.direction == "worse" else "failed → passes"
    return f"{format_value(metric, it.before_value)} → {format_value(metric, it.after_value)}"


def describe_size(it: Finding) -> str:
    """Write how large the change is: −12.3 %, or +3 where there was none before."""
    if it.kind == "vanished" or find_metric_of(it) is PASSES:
        return "–"
    if it.relative is not None:
        return ("+" if it.relative > 0 else "−") + format_percent(abs(it.relative))
    change = (it.after_value or 0) - (it.before_value or 0)
    return ("+" if change > 0 else "−") + format_value(find_metric_of(it), abs(change))


def describe_level(it: Finding, side: str) -> str:
    """Write one level: `side` is before or after."""
    before, _arrow, after = describe_values(it).partition(" → ")
    return before if side == "before" else after
