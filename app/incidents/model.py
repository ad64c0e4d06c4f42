"""An incident as displayed: the measurements that became worse, the commit range, the cause, and
the owner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from compileboard.app.benchmarks.labels import describe_backend
from compileboard.app.benchmarks.metrics import (
    BY_NAME,
    PASSES,
    RUN_METRICS,
    SUMMARY_BY_NAME,
    Metric,
)
from compileboard.app.core.fields import EventTime, TimeUs
from compileboard.app.core.format import format_plural, format_times
from compileboard.app.core.schema import PRIVATE, one_of, published
from compileboard.collectors.store.incident_triage import ACTIONS, SERIES
from compileboard.collectors.store.rollups import HUD_PASSING

STATES = ("unconfirmed", "open", "recovered", "closed", "withdrawn")
STATUSES = ("open", "acknowledged", "ignored")
CHANGE_STATES = ("unconfirmed", "confirmed", "withdrawn")
DIRECTIONS = ("worse", "better", "changed")
KINDS = ("step", "drift", "vanished")
SUBJECTS = ("model", "suite", "runs")
RUN_HELP = "`run_id`, `name`, `started_us`, `commit`, `subject`, `torch`; null where not known."
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
# Smaller p-values depend on the assumed shape of the noise, which was never observed so far out.
_MIN_P = 1e-4
_OF = {
    "model": {**BY_NAME, PASSES.name: PASSES},
    "suite": SUMMARY_BY_NAME,
    "runs": {metric.name: metric for metric in RUN_METRICS},
}
# Most visible first. A failure is 0; 1 stands for a wrong or missing result.
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
    "cudagraph_rerecording_count": 6,
    "fallbacks_to_eager": 6,
}
_UNKNOWN_SEVERITY = 7


@dataclass(frozen=True)
class SeriesChange:
    """A change of one series. An empty string or a 0 in the series' fields means not recorded.

    The change occurred in `first_run_id`, or anywhere from `low_run_id` to `high_run_id`. It is
    confirmed when a later run still shows it: `confirmed_us` is the time of that run, `noticed_us`
    the time when the change was found.
    """

    tables = ("series_changes",)

    id: str
    kind: Annotated[str, one_of(KINDS)]
    direction: Annotated[str, one_of(DIRECTIONS)]
    state: Annotated[str, one_of(CHANGE_STATES)]
    subject: Annotated[str, one_of(SUBJECTS)]
    suite: str
    model: str
    mode: str
    dtype: str
    device: str
    hardware: str
    backend: str
    dynamic: bool
    batch_size: int
    world_size: int
    branch: str
    metric: str
    before_value: float | None
    after_value: float | None
    relative: float | None
    p_value: float | None
    before_run_id: str | None
    first_run_id: str
    low_run_id: str | None
    high_run_id: str | None
    recovered_run_id: str | None
    first_us: int
    found_us: int
    confirmed_us: int | None
    noticed_us: int | None
    changed_us: int
    incident_id: str | None
    evidence: dict[str, Any] = field(metadata=PRIVATE)  # see app.incidents.evidence

    @property
    def key(self) -> tuple[Any, ...]:
        return (
            self.subject,
            *(getattr(self, name) for name in SERIES),
            self.branch,
            self.metric,
        )

    def has_fields(self, fields: Mapping[str, Any]) -> bool:
        """Return whether its series has these fields; None equals '' and 0."""
        return all(
            (getattr(self, name) or None) == (value or None) for name, value in fields.items()
        )

    @property
    def may_be_back(self) -> tuple[str, str] | None:
        """Return the runs between which it probably ended, None if it did not."""
        span = self.evidence.get("may_be_back")
        return (span[0], span[1]) if span else None

    @property
    @published
    def sentence(self) -> Annotated[str, "What it is, in one line."]:
        return f"{name_subject(self)}: {describe_change(self)}"

    @property
    @published
    def measured_as(self) -> Annotated[str, "Configuration of the series, in words."]:
        parts = [] if self.subject == "suite" else [self.suite]
        parts += [
            self.mode,
            self.dtype,
            self.hardware,
            describe_backend(self.backend or ""),
            "dynamic" if self.dynamic else "",
        ]
        parts += [
            f"batch {self.batch_size}" if self.batch_size else "",
            f"world size {self.world_size}" if self.world_size > 1 else "",
            self.branch,
        ]
        return " · ".join(part for part in parts if part)

    @property
    @published
    def range(self) -> Annotated[str, "Its range of runs or commits, in words."]:
        before, after = self.before, self.after
        if not before or not after:
            return f"since {format_times(self.first_us, None)[0]}"
        begun, ended = format_times(before["started_us"], after["started_us"])
        span = f"between {_name_run(before, begun)} and {_name_run(after, ended)}"
        commits = self.commits or {}
        if not commits.get("known"):
            return span
        if before.get("commit") == after.get("commit"):
            return f"{span}: the same commit"
        return f"{span}: {format_plural(int(commits.get('count') or 0), 'commit')}"

    @property
    @published
    def confidence(self) -> Annotated[str, "Confidence, in words."]:
        if self.p_value is None:
            return "certain" if self.kind != "vanished" else "the rest of the suite went on"
        if self.p_value >= _MIN_P:
            return f"p = {self.p_value:.1g}"
        return "certain (count)" if find_metric_of(self).kind == "count" else "p < 0.0001"

    @property
    @published
    def before(self) -> Annotated[dict[str, Any] | None, RUN_HELP]:
        return self.evidence.get("before") or None

    @property
    @published
    def after(self) -> Annotated[dict[str, Any] | None, RUN_HELP]:
        return self.evidence.get("after") or None

    @property
    @published
    def environment(
        self,
    ) -> Annotated[
        list[dict[str, Any]],
        "Changes of GPU, driver, torch and triton: `word`, `before`, `now`.",
    ]:
        return self.evidence.get("environment") or []

    @property
    @published
    def commits(
        self,
    ) -> Annotated[
        dict[str, Any] | None,
        "The commits after `before`, up to `after`: `known`, `count`, and `listed` with authors.",
    ]:
        return self.evidence.get("commits") or None

    @property
    @published
    def causes(
        self,
    ) -> Annotated[
        list[dict[str, Any]],
        (
            "What appeared in the same range: `kind`, `word`, `label`, `before`, `after`, "
            "`break_id`, `cause_id`, `rerecording_id`."
        ),
    ]:
        return self.evidence.get("causes") or []

    @property
    @published
    def points(
        self,
    ) -> Annotated[dict[str, Any] | None, "How many runs each level has: `before`, `after`."]:
        return self.evidence.get("points") or None


def judge_pass(status: str, accuracy: str | None) -> float | None:
    """Return 1 for a model that ran and is correct, 0 if it failed or is wrong, else None."""
    if status not in ("measured", "failed"):
        return None
    return float(status == "measured" and (accuracy is None or accuracy in HUD_PASSING))


def find_metric_of(change: SeriesChange) -> Metric:
    return _OF[change.subject][change.metric]


def list_metric_names() -> list[str]:
    return sorted({name for metrics in _OF.values() for name in metrics})


def rank_severity(change: SeriesChange) -> int:
    """Return a severity: 0 is a failure, larger is less severe."""
    if change.metric == PASSES.name and change.kind != "vanished":
        labels = [str(cause.get("label")) for cause in change.causes if cause["kind"] == "failure"]
        return 1 if labels and all("accuracy" in label for label in labels) else 0
    return 1 if change.kind == "vanished" else _SEVERITY.get(change.metric, _UNKNOWN_SEVERITY)


def rank_change(change: SeriesChange) -> tuple[Any, ...]:
    """Return a sort key: the most severe change first, withdrawn ones last."""
    return (
        change.state == "withdrawn",
        DIRECTIONS.index(change.direction),
        change.subject == "suite",
        rank_severity(change),
        -abs(change.relative or 0),
        change.id,
    )


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
    return text.replace("-", "−") + metric.suffix


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
    """Format the size of a change: `−54%`, or `+3` if the level before was 0; '' if it is
    unknown.
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


def describe_incident_range(incident: Incident) -> str:
    """Format as `since c7ed8b7, after bd77c9e`."""
    commit = incident.first_bad.short_commit
    before = incident.last_good.short_commit if incident.last_good else ""
    since = f"since {commit or format_times(incident.first_us, None)[0]}"
    return f"{since}, after {before}" if before and before != commit else since


def describe_cause(cause: Mapping[str, Any]) -> str:
    """Format as `graph break, new: call to print in forward (0 → 3)`."""
    kind = str(cause["kind"]).replace("_", " ").replace("rerecording", "CUDA graph recorded again")
    word = cause["word"]
    values = (
        ""
        if cause.get("before") is None and cause.get("after") is None
        else (f" ({_format_side(cause.get('before'))} → {_format_side(cause.get('after'))})")
    )
    return f"{kind}, {word}: {cause['label']}{values}"


def describe_environment(change: Mapping[str, Any]) -> str:
    """Format a changed part of the environment as `torch 2.10 → 2.11`."""
    return f"{change['word']} {change['before'] or 'unknown'} → {change['now'] or 'unknown'}"


def _format_side(value: object) -> str:
    return "none" if value is None else str(value)


def shorten_commit(commit: object) -> str:
    return str(commit or "")[:7]


def _name_run(run: Mapping[str, Any], when: str) -> str:
    commit = shorten_commit(run.get("commit"))
    return f"{commit} ({when})" if commit else when


@dataclass(frozen=True)
class IncidentRun:
    """A run at the edge of an incident, as it was recorded."""

    run_id: Annotated[str, "ID of the run."]
    commit: Annotated[str | None, "Its commit, whole."]
    subject: Annotated[str | None, "Subject of the commit."]
    name: Annotated[str | None, "Name of the run."]
    started_us: Annotated[TimeUs, "When it started."]
    torch: Annotated[str | None, "Version of torch in the run."]

    @property
    @published
    def short_commit(self) -> Annotated[str, "Seven digits of `commit`; empty without it."]:
        return shorten_commit(self.commit)

    @property
    def label(self) -> str:
        return self.short_commit or self.name or self.run_id


@dataclass(frozen=True)
class CauseCheck:
    """One check of a likely cause."""

    passed: Annotated[bool, "Whether it supports the cause."]
    text: Annotated[str, "The check and its result."]


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
    checks: Annotated[list[CauseCheck], "Checks for and against it."]
    # Used while searching for causes; not stored.
    source: str = field(default="", metadata=PRIVATE)
    explained: list[str] = field(default_factory=list, metadata=PRIVATE)  # names of metrics
    is_compile_failure: bool = field(default=False, metadata=PRIVATE)

    @property
    def passed_count(self) -> int:
        return sum(check.passed for check in self.checks)


@dataclass(frozen=True)
class HeadlineMetric:
    """One of the most important changes of an incident."""

    change_id: Annotated[str, "ID of the change."]
    subject: Annotated[str, "The model, suite or program."]
    metric: Annotated[str, "Name of the metric."]
    label: Annotated[str, "Name of the metric on the page."]
    values: Annotated[str, "Value before and after: `1.52× → 1.38×`."]
    size: Annotated[str, "Size of the change; empty if it has none."]
    direction: Annotated[str, one_of(DIRECTIONS), "Whether the change is better or worse."]


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
    first_bad: Annotated[IncidentRun, "The first run after the change."]
    last_good: Annotated[IncidentRun | None, "The last run before the change."]
    recovered: Annotated[IncidentRun | None, "The run that recovered it."]
    commits: Annotated[dict[str, Any] | None, "The commits in between: `known`, `count`, `listed`."]
    environment: Annotated[
        list[dict[str, Any]],
        "Changes of GPU, driver, torch and triton: `word`, `before`, `now`.",
    ]
    causes: Annotated[list[IncidentCause], "Likely causes, most checks passed first."]
    others: Annotated[list[str], "What else changed in the same range."]
    headlines: Annotated[list[HeadlineMetric], "The incident's three most visible changes."]
    code_owners: Annotated[list[str], "Owners of the first file of its causes, by CODEOWNERS."]
    first_us: int
    recovered_us: int | None
    found_us: int
    confirmed_us: int | None
    noticed_us: int | None
    changed_us: int
    last_good_run_id: str | None = field(metadata=PRIVATE)
    first_bad_run_id: str = field(metadata=PRIVATE)

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
class Comment:
    """A person's action or comment on an incident."""

    action: Annotated[str, one_of(ACTIONS), "What the person did."]
    author: Annotated[str, "The person's name, as given."]
    text: Annotated[str | None, "The comment, or the reason."]
    time_us: EventTime


@dataclass(frozen=True)
class IncidentDetail(Incident):
    """One incident with its changes and comments."""

    changes: Annotated[list[SeriesChange], "Its changes, the most severe first."]
    comments: Annotated[list[Comment], "The oldest first."]


@dataclass(frozen=True)
class Sparkline:
    values: Sequence[float | None]
    bad_from: int | None
    bad_to: int


def list_checks(cause: IncidentCause) -> Sequence[CauseCheck]:
    return sorted(cause.checks, key=lambda check: not check.passed)
