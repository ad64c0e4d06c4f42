"""`incidents`: nothing that the run measured has an open incident that nobody acknowledged."""

from __future__ import annotations

from compileboard.app.checks.rules.model import (
    FAIL,
    NOTE,
    PASS,
    OpenIncident,
    Rule,
    RuleOptions,
    RuleVerdict,
    Side,
)
from compileboard.app.incidents.model import describe_incident_range


def check(actual: Side, _expected: Side, _options: RuleOptions) -> list[RuleVerdict]:
    names = {row.key: row.name for row in actual.rows}
    concerned = [
        incident
        for incident in actual.incidents or ()
        if all(key in names for key in incident.keys)
    ]
    verdicts = [_make_verdict(incident, names) for incident in concerned]
    return verdicts or [RULE.make("the run", "PASS")]


def _make_verdict(concerned: OpenIncident, names: dict[str, str]) -> RuleVerdict:
    incident = concerned.incident
    models = list(dict.fromkeys(names[key] for key in concerned.keys))
    name = models[0] if len(models) == 1 else f"suite {incident.suite}"
    title = incident.title.removeprefix(f"{name}: ")
    detail = f"{title}, {describe_incident_range(incident)} (incident {incident.id})"
    return RULE.make(name, "OPEN_INCIDENT" if incident.state == "open" else "UNCONFIRMED", detail)


def _applies(actual: Side, _expected: Side, _options: RuleOptions) -> str:
    if actual.incidents is not None:
        return ""
    return (
        f"no detection has run since {actual.title} was made; `compileboard incidents update` "
        "does it"
    )


RULE = Rule(
    name="incidents",
    about=(
        "nothing that the run measured has an open incident: confirmed, not recovered, not taken on"
    ),
    source="CompileBoard",
    words={"PASS": PASS, "UNCONFIRMED": NOTE, "OPEN_INCIDENT": FAIL},
    check=check,
    applies=_applies,
    needs_baseline=False,
)
