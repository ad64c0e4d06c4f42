"""`accuracy`: every model's verdict is the expected one, as upstream's check_accuracy.py decides.

Source: pytorch benchmarks/dynamo/check_accuracy.py at 005a514
"""

from __future__ import annotations

from compileboard.app.checks.rules.model import (
    FAIL,
    IMPROVED,
    NOTE,
    PASS,
    Rule,
    RuleOptions,
    RuleVerdict,
    Side,
    is_empty,
    need_columns,
    show,
)


def check(actual: Side, expected: Side, options: RuleOptions) -> list[RuleVerdict]:
    verdicts = []
    for row in actual.rows:
        accuracy, expected_accuracy = (
            actual.get(row.name, "accuracy"),
            expected.get(row.name, "accuracy"),
        )
        word = _word(row.name, accuracy, expected_accuracy, options)
        detail = (
            ""
            if word in ("PASS", "XFAIL")
            else f"accuracy={show(accuracy)}, expected={show(expected_accuracy)}"
        )
        verdicts.append(RULE.make(row.name, word, detail))
    return verdicts


def _word(name: str, accuracy: object, expected_accuracy: object, options: RuleOptions) -> str:
    if accuracy is None:
        return "MISSING_ACCURACY"
    if expected_accuracy is None:
        return "MISSING_EXPECTED"
    if accuracy == expected_accuracy:
        return "PASS" if expected_accuracy == "pass" else "XFAIL"
    if name in options.flaky:
        return "PASS_BUT_FLAKY" if accuracy == "pass" else "FAIL_BUT_FLAKY"
    return "IMPROVED" if accuracy == "pass" else "FAIL"


RULE = Rule(
    name="accuracy",
    about="every model's accuracy is the expected one",
    source="check_accuracy.py",
    words={
        "PASS": PASS,
        "XFAIL": PASS,
        "PASS_BUT_FLAKY": NOTE,
        "FAIL_BUT_FLAKY": NOTE,
        "IMPROVED": IMPROVED,
        "FAIL": FAIL,
        "MISSING_ACCURACY": FAIL,
        "MISSING_EXPECTED": FAIL,
    },
    check=check,
    applies=need_columns("accuracy", both=True),
    is_default=True,
    columns=("accuracy",),
)


def check_csv(actual: Side, _expected: Side, _options: RuleOptions) -> list[RuleVerdict]:
    verdicts = []
    for row in actual.rows:
        accuracy = row.cells.get("accuracy")
        if is_empty(accuracy):
            verdicts.append(CSV_RULE.make(row.name, "FAIL", "no accuracy recorded"))
        else:
            verdicts.append(
                CSV_RULE.make(
                    row.name, "PASS" if "pass" in str(accuracy) else "FAIL", str(accuracy)
                )
            )
    return verdicts


CSV_RULE = Rule(
    name="csv",
    about='every accuracy has "pass" in it; needs no baseline',
    source="check_csv.py",
    words={"PASS": PASS, "FAIL": FAIL},
    check=check_csv,
    applies=need_columns("accuracy"),
    needs_baseline=False,
)
