"""`findings`: nothing that the run measured has an open finding: confirmed, worse, not recovered, not taken up."""

from __future__ import annotations

from compileboard.app.analysis.incidents.messages import describe_change, describe_commit_range, name_subject
from compileboard.app.checks.rules.model import FAIL, NOTE, PASS, OpenIncident, Rule, RuleOptions, RuleVerdict, Side


def check(actual: Side, _expected: Side, _options: RuleOptions) -> list[RuleVerdict]:
    """Say every finding of what the run measured; a suspected one waits for another run, and fails nothing."""
    names = {row.key: row.name for row in actual.rows}
    kept = [it for it in actual.findings or () if all(key in names for key in it.keys)]
    verdicts = [_make_verdict(it, names) for it in kept]
    return verdicts or [RULE.make("the run", "PASS")]


def _make_verdict(it: OpenIncident, names: dict[str, str]) -> RuleVerdict:
    name = names[it.keys[0]] if len(it.keys) == 1 else name_subject(it.finding)
    detail = f"{describe_change(it.finding)}, {describe_commit_range(it.finding)} (finding {it.finding.id})"
    return RULE.make(name, "OPEN_FINDING" if it.finding.state == "confirmed" else "SUSPECTED", detail)


def _applies(actual: Side, _expected: Side, _options: RuleOptions) -> str:
    if actual.findings is not None:
        return ""
    return f"nobody has looked for findings since {actual.title} was made; `compileboard findings update` does it"


RULE = Rule(
    name="findings",
    said="nothing that the run measured has an open finding: confirmed, worse, not recovered, not taken up",
    source="CompileBoard",
    words={"PASS": PASS, "SUSPECTED": NOTE, "OPEN_FINDING": FAIL},
    check=check,
    applies=_applies,
    needs_baseline=False,
)
