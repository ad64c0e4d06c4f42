"""`vanished` and `missing-baseline`: every model of one side is on the other."""

from __future__ import annotations

from compileboard.app.checks.rules.model import (
    FAIL,
    NOTE,
    PASS,
    Rule,
    RuleOptions,
    RuleVerdict,
    Side,
)


def check(actual: Side, expected: Side, _options: RuleOptions) -> list[RuleVerdict]:
    rows = {row.name: row for row in actual.rows}
    ran = {
        row.name for row in expected.rows if row.cells.get("status") not in ("skipped", "not_run")
    }
    verdicts = []
    for name in dict.fromkeys(row.name for row in expected.rows):
        row = rows.get(name)
        status = row.cells.get("status") if row else "absent"
        reason = row.cells.get("reason") if row else None
        was_run = name in ran
        if row is None:
            verdicts.append(
                RULE.make(name, "VANISHED", f"in {expected.title}, not in {actual.title}")
            )
        elif was_run and status == "not_run":
            verdicts.append(RULE.make(name, "NOT_RUN", str(reason or "no reason was recorded")))
        elif was_run and status == "skipped":
            verdicts.append(RULE.make(name, "SKIPPED", str(reason or "no reason was recorded")))
        else:
            verdicts.append(RULE.make(name, "PASS"))
    return verdicts


def _applies(_actual: Side, expected: Side, _options: RuleOptions) -> str:
    return "" if expected.rows else f"{expected.title} has no results"


RULE = Rule(
    name="vanished",
    about="every model of the baseline is in the run",
    source="CompileBoard",
    words={"PASS": PASS, "SKIPPED": NOTE, "NOT_RUN": FAIL, "VANISHED": FAIL},
    check=check,
    applies=_applies,
    is_default=True,
)


def check_baseline(actual: Side, expected: Side, _options: RuleOptions) -> list[RuleVerdict]:
    known = expected.names()
    detail = f"not in {expected.title}"
    return [
        MISSING_BASELINE_RULE.make(name, "PASS")
        if name in known
        else MISSING_BASELINE_RULE.make(name, "MISSING_BASELINE", detail)
        for name in dict.fromkeys(row.name for row in actual.rows)
    ]


def _applies_to_baseline(actual: Side, _expected: Side, _options: RuleOptions) -> str:
    return "" if actual.rows else f"{actual.title} has no results"


MISSING_BASELINE_RULE = Rule(
    name="missing-baseline",
    about="every model of the run is in the baseline",
    source="CompileBoard",
    words={"PASS": PASS, "MISSING_BASELINE": FAIL},
    check=check_baseline,
    applies=_applies_to_baseline,
)
