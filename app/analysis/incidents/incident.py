"""An incident as displayed: what is worse, since which commit, why, and who takes care of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.analysis.incidents.messages import shorten_commit
from compileboard.app.queries.dashboard.incidents import STATES, STATUSES, StoredIncident
from compileboard.app.queries.dashboard.series_changes import DIRECTIONS
from compileboard.app.queries.fields import Count, TimeUs
from compileboard.app.schema import one_of


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

    id: Annotated[str, "Its id: the same when it is detected anew."]
    title: Annotated[str, "What is worse and why, in one line."]
    direction: Annotated[
        str, one_of(DIRECTIONS), "`worse`; improvements and neutral changes are never open."
    ]
    state: Annotated[str, one_of(STATES), "Detection state."]
    status: Annotated[str, one_of(STATUSES), "Triage status. Ignored incidents send no alerts."]
    owner: Annotated[str | None, "Who acknowledged or ignored it."]
    reason: Annotated[str | None, "Why it is ignored."]
    suite: Annotated[str, "The suite; empty for recorded programs without one."]
    branch: Annotated[str, "The branch; empty where not recorded."]
    severity: Annotated[int, "0 is a failure; larger is less severe."]
    measured_as: Annotated[str, "Configuration of the leading series."]
    models: Annotated[list[str], "The models, suites or programs that changed."]
    lead_change_id: Annotated[str, "The change that it is named after."]
    change_count: Annotated[Count, "Changes that are its evidence."]
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
    first_us: Annotated[TimeUs, "When the first bad run started."]
    recovered_us: Annotated[TimeUs | None, "When the run started that recovered it."]
    found_us: Annotated[TimeUs, "When it was first found."]
    confirmed_us: Annotated[TimeUs | None, "When the run started that confirmed it."]
    noticed_us: Annotated[TimeUs | None, "When that was found out."]
    changed_us: Annotated[TimeUs, "When detection last changed it."]

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
