"""What a finding is, in words: the same sentence on the page, in a report and in an alert."""

from __future__ import annotations

from collections.abc import Mapping

from compileboard.app.analysis.metrics import BY_NAME, PASSES, RUN_METRICS, SUMMARY_BY_NAME, Metric, format_value
from compileboard.app.format import format_percent, format_plural, format_time, format_times
from compileboard.app.queries.findings import Finding

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
    "runs": {it.name: it for it in RUN_METRICS},
}


def find_metric_of(it: Finding) -> Metric:
    """Return the metric of a finding's series."""
    return _OF[it.subject][it.metric]


def list_metric_names() -> list[str]:
    """List the names of every metric that a finding may be of."""
    return sorted({name for metrics in _OF.values() for name in metrics})


def name_subject(it: Finding) -> str:
    """Name what changed: a model, a suite, or the runs of one name."""
    if it.subject == "suite":
        return f"suite {it.suite}"
    return f"runs of {it.model}" if it.subject == "runs" else it.model


def describe_finding(it: Finding) -> str:
    """Say in one line what changed: resnet18: speedup fell by 12.3 %, from 1.420× to 1.245×."""
    return f"{name_subject(it)}: {describe_change(it)}"


def describe_change(it: Finding) -> str:
    """Say what changed without naming whose it is."""
    metric = find_metric_of(it)
    if it.kind == "vanished":
        return "no longer measured"
    if metric is PASSES:
        return "fails since then" if it.direction == "worse" else "passes again"
    values = f"from {format_value(metric, it.before_value)} to {format_value(metric, it.after_value)}"
    rises = (it.after_value or 0) > (it.before_value or 0)
    verb = ("rose" if rises else "fell") if it.kind == "step" else ("crept up" if rises else "crept down")
    size = "" if it.relative is None else f" by {format_percent(abs(it.relative))}"
    return f"{metric.label.lower()} {verb}{size}, {values}"


def describe_series(it: Finding) -> str:
    """Say as what it was measured; what was not said is left out."""
    parts = [] if it.subject == "suite" else [it.suite]
    parts += [it.mode, it.dtype, it.backend, "dynamic" if it.dynamic else "", it.hardware]
    parts += [
        f"batch {it.batch_size}" if it.batch_size else "",
        f"world size {it.world_size}" if it.world_size > 1 else "",
    ]
    parts += [f"branch {it.branch}" if it.branch else ""]
    return " · ".join(part for part in parts if part)


def describe_range(it: Finding) -> str:
    """Say between which runs or commits the change came, and how many commits lie between, where that is known."""
    before, after = it.evidence.get("before"), it.evidence.get("after")
    if not before or not after:
        return f"since {format_time(it.first_us)[:16]}"
    begun, ended = format_times(*(int(str(run.get("started_us") or 0)) for run in (before, after)))
    span = f"between {_name_run(before, begun)} and {_name_run(after, ended)}"
    commits = it.evidence.get("commits") or {}
    if not commits.get("known"):
        return span
    if before.get("commit") == after.get("commit"):
        return f"{span}: the same commit"
    return f"{span}: {format_plural(int(commits.get('count') or 0), 'commit')}"


def describe_confidence(it: Finding) -> str:
    """Say how sure it is that noise did not make it."""
    if it.p_value is None:
        return "every other series of the suite went on" if it.subject == "model" else "other suites went on"
    if it.p_value < _SMALLEST_P:
        points = it.evidence.get("points") or {}
        runs = sum(int(count or 0) for count in points.values())
        return f"far outside the noise of {format_plural(runs, 'run')}" if runs else "far outside the noise"
    return f"noise makes such a change once in {_round_to_one_digit(1 / it.p_value)} times"


def describe_state(it: Finding) -> str:
    """Say what state it is in, in some words."""
    if it.state == "suspected":
        return "waits for another run to confirm it"
    if it.state == "withdrawn":
        return "later runs did not bear it out"
    return "recovered" if it.recovered_run_id else "confirmed by a later run"


def describe_cause(cause: Mapping[str, object]) -> str:
    """Say one suspected cause in a line: graph break, new: call to print in forward (0 → 3)."""
    before, after = cause.get("before"), cause.get("after")
    counts = "" if before is None and after is None else f" ({_say(before)} → {_say(after)})"
    if cause.get("kind") == "counter":
        return f"{str(cause.get('label')).lower()}, {cause.get('word')}{counts}"
    return f"{str(cause.get('kind')).replace('_', ' ')}, {cause.get('word')}: {cause.get('label')}{counts}"


def _say(value: object) -> str:
    return "none" if value is None else str(value)


def _name_run(run: dict[str, object], when: str) -> str:
    commit = str(run.get("commit") or "")[:8]
    return f"{commit} ({when})" if commit else when


def _round_to_one_digit(number: float) -> str:
    digits = len(str(int(number))) - 1
    return f"{round(number / 10**digits) * 10**digits:,}".replace(",", "\u202f")
