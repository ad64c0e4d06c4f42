"""`findings`: nothing that the run measured has an open finding: confirmed, worse, not recovered, not taken up."""

from __future__ import annotations

from compileboard.app.analysis.incidents.messages import describe_change, describe_commit_range, name_subject
from compileboard.app.checks.rules.model import FAIL, NOTE, PASS, OpenIncident, Rule, RuleOptions, RuleVerdict, Side


def check(actual: Side, _expected: Side, _options: RuleOptions) -> list[RuleVerdict]:
    """List every open finding of what the run measured; a suspected one waits for another run, and fails nothing."""
    names = {row.key: row.name for row in actual.rows}
    concerned = [finding for finding in actual.findings or () if all(key in names for key in finding.keys)]
    verdicts = [_make_verdict(incident, names) for incident in concerned]
    return verdicts or [RULE.make("the run", "PASS")]


def _make_verdict(incident: OpenIncident, names: dict[str, str]) -> RuleVerdict:
    name = names[incident.keys[0]] if len(incident.keys) == 1 else name_subject(incident.finding)
    finding = incident.finding
    detail = f"{describe_change(finding)}, {describe_commit_range(finding)} (finding {finding.id})"
    return RULE.make(name, "OPEN_FINDING" if incident.finding.state == "confirmed" else "SUSPECTED", detail)


def _applies(actual: Side, _expected: Side, _options: RuleOptions) -> str:
    if actual.findings is not None:
        return ""
    return f"nobody has looked for findings since {actual.title} was made; `compileboard findings update` does it"


RULE = Rule(
    name="findings",
    about="nothing that the run measured has an open finding: confirmed, worse, not recovered, not taken up",
    source="CompileBoard",
    words={"PASS": PASS, "SUSPECTED": NOTE, "OPEN_FINDING": FAIL},
    check=check,
    applies=_applies,
    needs_baseline=False,
)
