"""An incident as displayed: what is worse, since which commit, why, and who takes care of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.benchmarks.labels import describe_backend
from compileboard.app.benchmarks.metrics import (
    BY_NAME,
    PASSES,
    RUN_METRICS,
    SUMMARY_BY_NAME,
    Metric,
)
from compileboard.app.core.fields import TimeUs
from compileboard.app.core.format import format_plural, format_times
from compileboard.app.core.schema import one_of
from compileboard.app.incidents.queries import STATES, STATUSES, StoredIncident
from compileboard.app.incidents.series_changes import DIRECTIONS, SeriesChange

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


@dataclass(frozen=True)
class IncidentRun:
    """A run that an incident names, as it was recorded."""

    run_id: Annotated[str, "ID of the run."]
    commit: Annotated[str | None, "Its commit, whole."]
    short_commit: Annotated[str, "Seven digits of it; empty where not recorded."]
    subject: Annotated[str | None, "Subject of the commit."]
    name: Annotated[str | None, "Name of the run."]
    started_us: Annotated[TimeUs, "When it started."]
    torch: Annotated[str | None, "Its torch version."]

    @property
    def label(self) -> str:
        return self.short_commit or self.name or self.run_id


@dataclass(frozen=True)
class CauseCheck:
    """One check of a likely cause."""

    passed: Annotated[bool, "Whether it speaks for the cause."]
    text: Annotated[str, "Each check and its result."]


@dataclass(frozen=True)
class IncidentCause:
    """One likely cause of an incident."""

    kind: Annotated[
        str, "`failure`, `graph_break`, `recompile`, `environment`, `setting` or `eager_mode`."
    ]
    text: Annotated[str, "The cause in a few words, with file and line."]
    reason: Annotated[str, "Torch's reason or message."]
    file: Annotated[str | None, "File of the user's line."]
    line: Annotated[int | None, "The line, in the newest run that had it."]
    source_line: Annotated[str | None, "The line's source."]
    function: Annotated[str | None, "Qualified name of the function."]
    break_id: Annotated[str | None, "ID of the graph break."]
    cause_id: Annotated[str | None, "ID of the recompile cause."]
    before: Annotated[Any, "Occurrences before."]
    after: Annotated[Any, "Occurrences after."]
    also: Annotated[list[str], "Other breaks of the same statement."]
    checks: Annotated[list[CauseCheck], "What speaks for it, and against."]

    @property
    def passed_count(self) -> int:
        return sum(check.passed for check in self.checks)


@dataclass(frozen=True)
class HeadlineMetric:
    """One of the most important changes of an incident."""

    change_id: Annotated[str, "ID of the change."]
    subject: Annotated[str, "The model, suite or program."]
    metric: Annotated[str, "Name of the metric."]
    label: Annotated[str, "Label of the metric."]
    values: Annotated[str, "Old → new."]
    size: Annotated[str, "How large the change is; empty where it has no size."]
    direction: Annotated[str, one_of(DIRECTIONS), "Which way."]

    @property
    def before(self) -> str:
        return self.values.partition(" → ")[0]

    @property
    def after(self) -> str:
        return self.values.partition(" → ")[2]


@dataclass(frozen=True)
class Incident:
    """Series changes of one commit range with their likely cause, one status and one discussion."""

    tables = ("incidents",)

    id: str
    title: str
    direction: Annotated[str, one_of(DIRECTIONS)]
    state: Annotated[str, one_of(STATES)]
    status: Annotated[str, one_of(STATUSES)]
    owner: str | None
    reason: str | None
    suite: str
    branch: str
    severity: int
    measured_as: Annotated[str, "Configuration of the leading series."]
    models: Annotated[list[str], "The models, suites or programs that changed."]
    lead_change_id: str
    change_count: int
    first_bad: Annotated[IncidentRun, "The first run after."]
    last_good: Annotated[IncidentRun | None, "The last run before."]
    recovered: Annotated[IncidentRun | None, "The run that recovered it."]
    commits: Annotated[dict[str, Any] | None, "The commits in between: `known`, `count`, `listed`."]
    environment: Annotated[
        list[dict[str, Any]],
        "What of GPU, driver, torch and triton changed: `word`, `before`, `now`.",
    ]
    causes: Annotated[list[IncidentCause], "Likely causes, most checks passed first."]
    others: Annotated[list[str], "What else changed in the same range."]
    headlines: Annotated[list[HeadlineMetric], "Its three most visible changes."]
    first_us: int
    recovered_us: int | None
    found_us: int
    confirmed_us: int | None
    noticed_us: int | None
    changed_us: int

    @property
    def cause(self) -> IncidentCause | None:
        return self.causes[0] if self.causes else None

    @property
    def has_one_cause(self) -> bool:
        return len(self.causes) == 1 or (
            len(self.causes) > 1 and self.causes[0].passed_count > self.causes[1].passed_count
        )

    @property
    def subject(self) -> str:
        return self.title.partition(": ")[0]

    @property
    def what(self) -> str:
        return self.title.partition(": ")[2] or self.title


@dataclass(frozen=True)
class Sparkline:
    values: Sequence[float | None]
    bad_from: int | None
    bad_to: int


def make_incident(stored: StoredIncident) -> Incident:
    evidence = stored.evidence
    values = {
        name: value for name, value in vars(stored).items() if name in Incident.__dataclass_fields__
    }
    first_bad = _make_run(evidence.get("first_bad")) or IncidentRun(
        stored.first_bad_run_id, None, "", None, None, stored.first_us, None
    )
    return Incident(
        **values,
        measured_as=evidence.get("measured_as") or "",
        models=list(evidence.get("models") or ()),
        first_bad=first_bad,
        last_good=_make_run(evidence.get("last_good")),
        recovered=_make_run(evidence.get("recovered")),
        commits=evidence.get("commits"),
        environment=list(evidence.get("environment") or ()),
        causes=[_make_cause(cause) for cause in evidence.get("causes") or ()],
        others=list(evidence.get("others") or ()),
        headlines=[HeadlineMetric(**headline) for headline in evidence.get("headline") or ()],
    )


def _make_run(run: Mapping[str, Any] | None) -> IncidentRun | None:
    if not run:
        return None
    return IncidentRun(
        run_id=run["run_id"],
        commit=run.get("commit"),
        short_commit=shorten_commit(run.get("commit")),
        subject=run.get("subject"),
        name=run.get("name"),
        started_us=int(run.get("started_us") or 0),
        torch=run.get("torch"),
    )


def _make_cause(cause: Mapping[str, Any]) -> IncidentCause:
    own = {name: cause.get(name) for name in IncidentCause.__dataclass_fields__}
    checks = [
        CauseCheck(bool(check["passed"]), str(check["text"])) for check in cause.get("checks") or ()
    ]
    return IncidentCause(**own | {"checks": checks, "also": list(cause.get("also") or ())})


def list_checks(cause: IncidentCause) -> Sequence[CauseCheck]:
    return sorted(cause.checks, key=lambda check: not check.passed)
