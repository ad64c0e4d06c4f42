"""The verdict at the top of a page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from compileboard.app.comparison.model import format_names
from compileboard.app.core.format import format_day, format_plural
from compileboard.app.core.schema import one_of
from compileboard.app.incidents.model import Incident

STATES = ("failed", "incidents", "unconfirmed", "fixes", "stale", "first", "recording", "good")
TONES = {
    "failed": "bad",
    "incidents": "bad",
    "unconfirmed": "warn",
    "fixes": "warn",
    "good": "good",
}
STALE_DAYS = 7
TOO_FEW_RUNS = 3  # a tile needs three earlier values
_DAY_US = 86_400_000_000
_FEW = 3  # models that a sentence names


class VerdictCount(NamedTuple):
    """A count shown next to a verdict."""

    label: Annotated[str, "What is counted."]
    value: Annotated[str, "The count as text."]


@dataclass(frozen=True)
class PageVerdict:
    """The verdict of a page. `state` names the first rule that matches."""

    state: Annotated[
        str,
        one_of(STATES),
        "What decided it. `fixes`: known fixes save compile time; `stale`: no run for 7 days; "
        "`first`: too few runs to judge a change; `recording`: the first run is not over.",
    ]
    sentence: Annotated[str, "What is wrong, or that nothing is."]
    context: Annotated[str, "One line of context; may be empty."] = ""
    counts: Annotated[list[VerdictCount], "Counts beside it."] = field(default_factory=list)
    incident_id: Annotated[str | None, "The incident that it is about, where it is one."] = None

    @property
    def tone(self) -> str:
        return TONES.get(self.state, "quiet")

    @property
    def mark(self) -> str:
        return {"bad": "!", "warn": "!", "good": "✓"}.get(self.tone, "–")


@dataclass(frozen=True)
class VerdictFacts:
    incidents: Sequence[Incident] = ()
    failing: Sequence[str] = ()  # models of the newest run, or the program that failed
    failure: str = "fails"  # how the only one of them failed
    failing_since: str = ""
    wrong: Collection[
        str
    ] = ()  # models of the newest run that ran but did not pass the accuracy check
    model_count: int = 0
    run_count: int = 0
    newest_us: int = 0
    now_us: int = 0
    fixes: str = ""  # savings of the fixes of the newest programs
    is_recording: bool = False
    has_others: bool = False  # finished runs of other configurations or programs exist
    passing_again: Sequence[str] = ()  # models that failed in the run before
    environment: Sequence[str] = ()  # differences from the run before: torch 2.11.0 → 2.12.0
    recovered_count: int = 0
    counts: Sequence[VerdictCount] = ()


def decide_verdict(facts: VerdictFacts) -> PageVerdict:
    suspected = [incident for incident in facts.incidents if incident.state == "unconfirmed"]
    confirmed = [incident for incident in facts.incidents if incident.state != "unconfirmed"]
    state, sentence, incident_id = _choose_verdict(facts, confirmed, suspected)
    return PageVerdict(
        state, sentence, _describe_context(facts, state, confirmed), list(facts.counts), incident_id
    )


def _choose_verdict(
    facts: VerdictFacts, confirmed: Sequence[Incident], suspected: Sequence[Incident]
) -> tuple[str, str, str | None]:
    if facts.failing:
        return _describe_failure(facts, confirmed)
    if confirmed:
        models = list(dict.fromkeys(model for incident in confirmed for model in incident.models))
        since = {incident.first_bad.short_commit for incident in confirmed}
        worst = confirmed[0]
        headline = f"{worst.subject} {worst.what.partition(', ')[0]}"
        if len(confirmed) == 1 and len(models) <= 1:
            return "incidents", headline + _format_since(*since), worst.id
        if len(since) == 1 and facts.model_count:
            only = worst.id if len(confirmed) == 1 else None
            return (
                "incidents",
                f"{len(models)} of {facts.model_count} models worse{_format_since(*since)}",
                only,
            )
        count = format_plural(len(confirmed), "incident")
        return "incidents", f"{count} open, worst: {headline}", None
    if suspected:
        names = " and ".join(
            dict.fromkeys(_lowercase_suite(incident.subject) for incident in suspected[:_FEW])
        )
        only = suspected[0].id if len(suspected) == 1 else None
        return "unconfirmed", f"Possible regression in {names}, confirming with the next run", only
    if facts.fixes:
        return "fixes", facts.fixes, None
    if _is_stale(facts):
        return "stale", f"No run since {format_day(facts.newest_us, facts.now_us)}", None
    if facts.is_recording and not facts.run_count:
        return (
            "recording",
            f"Recording the first run{' of this configuration' if facts.has_others else ''}",
            None,
        )
    if facts.run_count == 1:
        return (
            "first",
            f"First run: {format_plural(facts.model_count, 'model')}"
            if facts.model_count
            else "1 run",
            None,
        )
    if 1 < facts.run_count <= TOO_FEW_RUNS:
        return "first", f"{format_plural(facts.run_count, 'run')}: too few to judge a change", None
    return "good", f"No regressions in the last {format_plural(facts.run_count, 'run')}", None


def _describe_failure(
    facts: VerdictFacts, confirmed: Sequence[Incident]
) -> tuple[str, str, str | None]:
    failing = set(facts.failing)
    worse = {model for incident in confirmed for model in incident.models} - failing
    incident = next((incident for incident in confirmed if failing & set(incident.models)), None)
    since = incident.first_bad.short_commit if incident else facts.failing_since
    incident_id = incident.id if incident else None
    if worse and facts.model_count:
        fails = "1 fails" if len(failing) == 1 else f"{len(failing)} fail"
        return (
            "failed",
            f"{len(worse)} of {facts.model_count} models worse, {fails}{_format_since(since)}",
            incident_id,
        )
    if len(failing) == 1:
        return "failed", f"{facts.failing[0]} {facts.failure}{_format_since(since)}", incident_id
    of = f" of {facts.model_count}" if facts.model_count else ""
    return "failed", f"{len(failing)}{of} models fail{_format_since(since)}", incident_id


def _lowercase_suite(subject: str) -> str:
    return subject.replace("Suite ", "suite ", 1) if subject.startswith("Suite ") else subject


def _format_since(commit: str) -> str:
    return f" since {commit}" if commit else ""


def _describe_context(facts: VerdictFacts, state: str, confirmed: Sequence[Incident]) -> str:
    parts = []
    if state in ("failed", "incidents"):
        parts += [format_plural(len(confirmed), "open incident")] if confirmed else []
        affected = {model for incident in confirmed for model in incident.models}
        affected |= {*facts.failing, *facts.wrong}
        healthy_count = facts.model_count - len(affected)
        parts += (
            [f"{format_plural(healthy_count, 'model')} healthy"]
            if facts.model_count and healthy_count > 0
            else []
        )
    if facts.passing_again:
        names = format_names(facts.passing_again, _FEW)
        parts.append(f"{names} no longer {'fails' if len(facts.passing_again) == 1 else 'fail'}")
    parts += [f"Environment changed: {', '.join(facts.environment)}"] if facts.environment else []
    parts += (
        [f"{format_plural(facts.recovered_count, 'incident')} recovered today"]
        if facts.recovered_count
        else []
    )
    parts += ["Trends start with the second run"] if facts.run_count == 1 else []
    parts += (
        [f"Newest run {format_day(facts.newest_us, facts.now_us)}"]
        if _is_stale(facts) and state != "stale"
        else []
    )
    parts += ["A run is recording"] if facts.is_recording and state != "recording" else []
    return ". ".join(parts) + ("." if parts else "")


def is_stale(newest_us: int, now_us: int) -> bool:
    return bool(newest_us) and now_us - newest_us > STALE_DAYS * _DAY_US


def _is_stale(facts: VerdictFacts) -> bool:
    return is_stale(facts.newest_us, facts.now_us)
