"""What a finding is, in words: the same sentence on the page, in a report and in an alert."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compileboard.app.analysis.metrics import BY_NAME, PASSES, RUN_METRICS, SUMMARY_BY_NAME, Metric, format_value
from compileboard.app.format import format_percent, format_plural, format_time, format_times
from compileboard.app.queries.dashboard.incidents import Comment, SeriesChange

STATE_WORDS = {
    "suspected": ("suspected", "busy"),
    "confirmed": ("confirmed", "warn"),
    "withdrawn": ("withdrawn", "quiet"),
}
DIRECTION_WORDS = {"worse": ("worse", "bad"), "better": ("better", "good"), "changed": ("changed", "quiet")}
HANDLING_WORDS = {"open": ("open", "warn"), "acknowledged": ("acknowledged", "quiet"), "ignored": ("ignored", "quiet")}
# Below it a p-value tells of the shape that noise was taken to have, not of noise that anybody saw.
_SMALLEST_P = 1e-4
_OF = {
    "model": {**BY_NAME, PASSES.name: PASSES},
    "suite": SUMMARY_BY_NAME,
    "runs": {metric.name: metric for metric in RUN_METRICS},
}


def find_metric_of(change: SeriesChange) -> Metric:
    """Return the metric of a finding's series."""
    return _OF[change.subject][change.metric]


def list_metric_names() -> list[str]:
    """List the names of every metric that a finding may be of."""
    return sorted({name for metrics in _OF.values() for name in metrics})


def name_subject(change: SeriesChange) -> str:
    """Name what changed: a model, a suite, or the runs of one name."""
    if change.subject == "suite":
        return f"suite {change.suite}"
    return f"runs of {change.model}" if change.subject == "runs" else change.model


def describe_finding(change: SeriesChange) -> str:
    """Return in one line what changed: resnet18: speedup fell by 12.3 %, from 1.420× to 1.245×."""
    return f"{name_subject(change)}: {describe_change(change)}"


def describe_change(change: SeriesChange) -> str:
    """Return what changed, without the name of the model or suite."""
    metric = find_metric_of(change)
    if change.kind == "vanished":
        return "no longer measured"
    if metric is PASSES:
        return "fails since then" if change.direction == "worse" else "passes again"
    values = f"from {format_value(metric, change.before_value)} to {format_value(metric, change.after_value)}"
    rises = (change.after_value or 0) > (change.before_value or 0)
    verb = ("rose" if rises else "fell") if change.kind == "step" else ("crept up" if rises else "crept down")
    size = "" if change.relative is None else f" by {format_percent(abs(change.relative))}"
    return f"{metric.label.lower()} {verb}{size}, {values}"


def describe_series(change: SeriesChange) -> str:
    """Return what the series was measured as; what is not recorded is left out."""
    parts = [] if change.subject == "suite" else [change.suite]
    parts += [change.mode, change.dtype, change.backend, "dynamic" if change.dynamic else "", change.hardware]
    parts += [
        f"batch {change.batch_size}" if change.batch_size else "",
        f"world size {change.world_size}" if change.world_size > 1 else "",
    ]
    parts += [f"branch {change.branch}" if change.branch else ""]
    return " · ".join(part for part in parts if part)


def describe_commit_range(change: SeriesChange) -> str:
    """Return the runs or commits between which the change came, and how many lie between where that is known."""
    before, after = change.evidence.get("before"), change.evidence.get("after")
    if not before or not after:
        return f"since {format_time(change.first_us)[:16]}"
    begun, ended = format_times(*(int(str(run.get("started_us") or 0)) for run in (before, after)))
    span = f"between {_name_run(before, begun)} and {_name_run(after, ended)}"
    commits = change.evidence.get("commits") or {}
    if not commits.get("known"):
        return span
    if before.get("commit") == after.get("commit"):
        return f"{span}: the same commit"
    return f"{span}: {format_plural(int(commits.get('count') or 0), 'commit')}"


def format_confidence(change: SeriesChange) -> str:
    """Return how likely it is that noise did not make the change."""
    if change.p_value is None:
        return "every other series of the suite went on" if change.subject == "model" else "other suites went on"
    if change.p_value < _SMALLEST_P:
        points = change.evidence.get("points") or {}
        runs = sum(int(count or 0) for count in points.values())
        return f"far outside the noise of {format_plural(runs, 'run')}" if runs else "far outside the noise"
    return f"noise makes such a change once in {_round_to_one_digit(1 / change.p_value)} times"


def describe_state(change: SeriesChange) -> str:
    """Return the detection state in some words."""
    if change.state == "suspected":
        return "waits for another run to confirm it"
    if change.state == "withdrawn":
        return "later runs did not bear it out"
    return "recovered" if change.recovered_run_id else "confirmed by a later run"


def describe_cause(cause: Mapping[str, object]) -> str:
    """Return one suspected cause in a line: graph break, new: call to print in forward (0 → 3)."""
    before, after = cause.get("before"), cause.get("after")
    counts = "" if before is None and after is None else f" ({_format_subject(before)} → {_format_subject(after)})"
    if cause.get("kind") == "counter":
        return f"{str(cause.get('label')).lower()}, {cause.get('word')}{counts}"
    return f"{str(cause.get('kind')).replace('_', ' ')}, {cause.get('word')}: {cause.get('label')}{counts}"


def _format_subject(value: object) -> str:
    return "none" if value is None else str(value)


def _name_run(run: dict[str, object], when: str) -> str:
    commit = str(run.get("commit") or "")[:8]
    return f"{commit} ({when})" if commit else when


def _round_to_one_digit(number: float) -> str:
    digits = len(str(int(number))) - 1
    return f"{round(number / 10**digits) * 10**digits:,}".replace(",", "\u202f")


def describe_subject(change: SeriesChange) -> str:
    """Name what of a subject changed: speedup; accuracy and failures; no longer measured."""
    metric = find_metric_of(change)
    if change.kind == "vanished":
        return "no longer measured"
    if metric is PASSES:
        return "fails" if change.direction == "worse" else "passes"
    return metric.label.lower() + (", little by little" if change.kind == "drift" else "")


def describe_values(change: SeriesChange) -> str:
    """Write the value before and after: 1.420× → 1.245×."""
    metric = find_metric_of(change)
    if change.kind == "vanished":
        return "measured → gone"
    if metric is PASSES:
        return "passed → fails" if change.direction == "worse" else "failed → passes"
    return f"{format_value(metric, change.before_value)} → {format_value(metric, change.after_value)}"


def describe_size(other_change: SeriesChange) -> str:
    """Write how large the change is: −12.3 %, or +3 where there was none before."""
    if other_change.kind == "vanished" or find_metric_of(other_change) is PASSES:
        return "–"
    if other_change.relative is not None:
        return ("+" if other_change.relative > 0 else "−") + format_percent(abs(other_change.relative))
    change = (other_change.after_value or 0) - (other_change.before_value or 0)
    return ("+" if change > 0 else "−") + format_value(find_metric_of(other_change), abs(change))


def describe_level(change: SeriesChange, side: str) -> str:
    """Write one level: `side` is before or after."""
    before, _arrow, after = describe_values(change).partition(" → ")
    return before if side == "before" else after


# What of the evidence is given, and what stands where detection could say nothing.
_EVIDENCE: dict[str, Any] = {
    "before": None,
    "after": None,
    "environment": [],
    "commits": None,
    "causes": [],
    "points": None,
}


def finding_row(change: SeriesChange) -> dict[str, Any]:
    """Return one finding with its messages."""
    row = dict(vars(change))
    evidence = row.pop("evidence")
    messages = {
        "sentence": describe_finding(change),
        "measured_as": describe_series(change),
        "range": describe_commit_range(change),
        "confidence": format_confidence(change),
        "recovered": change.recovered_run_id is not None,
    }
    return row | messages | {name: evidence.get(name) or none for name, none in _EVIDENCE.items()}


def finding_detail_row(change: SeriesChange, comments: Iterable[Comment]) -> dict[str, Any]:
    """Return one finding with its comments, the oldest first."""
    names = ("action", "who", "text", "time_us")
    return finding_row(change) | {"words": [{name: getattr(word, name) for name in names} for word in comments]}
