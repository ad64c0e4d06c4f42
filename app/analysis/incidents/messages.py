"""Series changes and incidents in words, the same on pages, in reports and in alerts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compileboard.app.analysis.metrics import BY_NAME, PASSES, RUN_METRICS, SUMMARY_BY_NAME, Metric
from compileboard.app.analysis.models.backends import describe_backend
from compileboard.app.format import format_plural, format_times
from compileboard.app.queries.dashboard.incidents import StoredIncident
from compileboard.app.queries.dashboard.series_changes import SeriesChange

STATE_LABELS = {
    "unconfirmed": ("Unconfirmed", "busy"),
    "confirmed": ("Confirmed", "warn"),
    "withdrawn": ("Withdrawn", "quiet"),
}
INCIDENT_LABELS = {
    "unconfirmed": ("Unconfirmed", "busy"),
    "open": ("Open", "bad"),
    "recovered": ("Recovered", "good"),
    "closed": ("No regression", "quiet"),
    "withdrawn": ("Withdrawn", "quiet"),
}
STATUS_LABELS = {"acknowledged": ("Acknowledged", "warn"), "ignored": ("Ignored", "quiet")}
DIRECTION_LABELS = {
    "worse": ("Worse", "bad"),
    "better": ("Better", "good"),
    "changed": ("Neutral", "quiet"),
}
ACTION_LABELS = {
    "acknowledge": "acknowledged",
    "ignore": "ignored",
    "comment": "commented",
    "reopen": "reopened",
}
# Below it a p-value tells of the shape that noise was taken to have, not of noise that anybody saw.
_SMALLEST_P = 1e-4
_OF = {
    "model": {**BY_NAME, PASSES.name: PASSES},
    "suite": SUMMARY_BY_NAME,
    "runs": {metric.name: metric for metric in RUN_METRICS},
}
# What a person notices first. A failure is 0, or 1 where the answer is wrong or there is none any
# more.
_SEVERITY = {
    "pass_ratio": 1,
    "speedup": 2,
    "geomean_speedup": 2,
    "abs_latency_ms": 3,
    "compilation_latency_s": 4,
    "warm_compilation_latency_s": 4,
    "compile_s": 4,
    "dynamo_peak_mem_gb": 5,
    "compression_ratio": 5,
    "graph_breaks": 6,
    "graph_breaks_per_model": 6,
    "graph_break_count": 6,
    "recompiles": 6,
    "recompiles_per_model": 6,
    "recompile_count": 6,
    "recompile_limit_count": 6,
    "fallbacks_to_eager": 6,
}
_LEAST_SEVERE = 7


def find_metric_of(change: SeriesChange) -> Metric:
    return _OF[change.subject][change.metric]


def list_metric_names() -> list[str]:
    return sorted({name for metrics in _OF.values() for name in metrics})


def rank_severity(change: SeriesChange) -> int:
    """Return a severity: 0 is a failure, larger is less severe."""
    if change.metric == PASSES.name and change.kind != "vanished":
        labels = [
            str(cause.get("label"))
            for cause in change.evidence.get("causes") or ()
            if cause["kind"] == "failure"
        ]
        return 1 if labels and all("accuracy" in label for label in labels) else 0
    return 1 if change.kind == "vanished" else _SEVERITY.get(change.metric, _LEAST_SEVERE)


def name_subject(change: SeriesChange) -> str:
    return f"Suite {change.suite}" if change.subject == "suite" else change.model


def name_change(change: SeriesChange, *, named: bool) -> str:
    label = find_metric_of(change).label if change.kind != "vanished" else "No longer measured"
    return (
        f"{name_subject(change)}: {label.lower()}" if named or change.subject == "suite" else label
    )


def format_level(metric: Metric, value: float | None) -> str:
    """Format with three significant figures and the unit: `4.17×`, `0.119 ms`, `31,551`, `98%`."""
    if value is None:
        return "not recorded"
    number = value * metric.factor
    text = f"{number:,.0f}" if abs(number) >= 100 or float(number).is_integer() else f"{number:.3g}"
    return text.replace("-", "−") + (
        metric.unit if metric.unit in ("×", "%") else f" {metric.unit}" if metric.unit else ""
    )


def format_share(share: float) -> str:
    percent = abs(share) * 100
    return f"{percent:,.0f}%" if percent >= 9.5 else f"{percent:.2g}%"


def describe_values(change: SeriesChange) -> str:
    metric = find_metric_of(change)
    if change.kind == "vanished":
        return "measured → not measured"
    if metric is PASSES:
        return "passed → failed" if change.direction == "worse" else "failed → passed"
    return (
        f"{format_level(metric, change.before_value)} → {format_level(metric, change.after_value)}"
    )


def describe_size(change: SeriesChange) -> str:
    """Format the size of a change: `−54%`, or `+3` if the level before was 0; '' if it has no
    size.
    """
    metric = find_metric_of(change)
    if change.kind == "vanished" or metric is PASSES:
        return ""
    if change.relative is not None:
        return ("+" if change.relative > 0 else "−") + format_share(change.relative)
    delta = (change.after_value or 0) - (change.before_value or 0)
    return ("+" if delta > 0 else "−") + format_level(metric, abs(delta))


def describe_change(change: SeriesChange) -> str:
    """Format without the model or suite: `speedup 4.17× → 1.92× (−54%)`."""
    metric = find_metric_of(change)
    if change.kind == "vanished":
        return "no longer measured"
    if metric is PASSES:
        return "fails" if change.direction == "worse" else "passes again"
    size = describe_size(change)
    gradual = ", gradually" if change.kind == "drift" else ""
    return (
        f"{metric.label.lower()} {describe_values(change)}{f' ({size})' if size else ''}{gradual}"
    )


def describe_series_change(change: SeriesChange) -> str:
    return f"{name_subject(change)}: {describe_change(change)}"


def describe_headline(change: SeriesChange) -> str:
    """Format for a title: `speedup down 54%`, `graph breaks 0 → 2`, `fails to compile`."""
    metric = find_metric_of(change)
    if change.kind == "vanished" or metric is PASSES:
        return describe_change(change)
    if change.relative is None or metric.kind == "count":
        return f"{metric.label.lower()} {describe_values(change)}"
    gradual = " gradually" if change.kind == "drift" else ""
    if change.relative > 1:
        return f"{metric.label.lower()} up{gradual} {1 + change.relative:.2g}×"
    return (
        f"{metric.label.lower()} {'up' if change.relative > 0 else 'down'}{gradual} "
        f"{format_share(change.relative)}"
    )


def describe_series(change: SeriesChange) -> str:
    parts = [] if change.subject == "suite" else [change.suite]
    parts += [
        change.mode,
        change.dtype,
        change.hardware,
        describe_backend(change.backend or ""),
        "dynamic" if change.dynamic else "",
    ]
    parts += [
        f"batch {change.batch_size}" if change.batch_size else "",
        f"world size {change.world_size}" if change.world_size > 1 else "",
        change.branch,
    ]
    return " · ".join(part for part in parts if part)


def describe_commit_range(change: SeriesChange) -> str:
    before, after = change.evidence.get("before"), change.evidence.get("after")
    if not before or not after:
        return f"since {format_times(change.first_us, None)[0]}"
    begun, ended = format_times(*(int(str(run.get("started_us") or 0)) for run in (before, after)))
    span = f"between {_name_run(before, begun)} and {_name_run(after, ended)}"
    commits = change.evidence.get("commits") or {}
    if not commits.get("known"):
        return span
    if before.get("commit") == after.get("commit"):
        return f"{span}: the same commit"
    return f"{span}: {format_plural(int(commits.get('count') or 0), 'commit')}"


def describe_incident_range(incident: StoredIncident) -> str:
    """Format as `since c7ed8b7, after bd77c9e`."""
    good, bad = (incident.evidence.get(name) or {} for name in ("last_good", "first_bad"))
    commit, before = shorten_commit(bad.get("commit")), shorten_commit(good.get("commit"))
    since = f"since {commit or format_times(incident.first_us, None)[0]}"
    return f"{since}, after {before}" if before and before != commit else since


def format_confidence(change: SeriesChange) -> str:
    if change.p_value is None:
        return "certain" if change.kind != "vanished" else "the rest of the suite went on"
    if change.p_value >= _SMALLEST_P:
        return f"p = {change.p_value:.1g}"
    return "certain (count)" if find_metric_of(change).kind == "count" else "p < 0.0001"


def describe_state(change: SeriesChange) -> str:
    if change.state == "unconfirmed":
        return "waits for another run to confirm it"
    if change.state == "withdrawn":
        return "later runs do not show it"
    return "recovered" if change.recovered_run_id else "confirmed by a later run"


def describe_cause(cause: Mapping[str, Any]) -> str:
    """Format as `graph break, new: call to print in forward (0 → 3)`."""
    kind, word = str(cause["kind"]).replace("_", " "), cause["word"]
    values = (
        ""
        if cause.get("before") is None and cause.get("after") is None
        else (f" ({_format_side(cause.get('before'))} → {_format_side(cause.get('after'))})")
    )
    return f"{kind}, {word}: {cause['label']}{values}"


def _format_side(value: object) -> str:
    return "none" if value is None else str(value)


def shorten_commit(commit: object) -> str:
    return str(commit or "")[:7]


def _name_run(run: Mapping[str, Any], when: str) -> str:
    commit = shorten_commit(run.get("commit"))
    return f"{commit} ({when})" if commit else when
