"""`csv`: every accuracy says "pass" somewhere, as upstream's check_csv.py decides; it needs no baseline.

Source: pytorch benchmarks/dynamo/check_csv.py at 4fadce9
"""

from __future__ import annotations

from compileboard.app.analysis.gates.model import FAIL, PASS, Options, Rule, Side, Verdict, is_empty, need_columns


def check(actual: Side, _expected: Side, _options: Options) -> list[Verdict]:
    """Look for "pass" in every model's accuracy."""
    verdicts = []
    for row in actual.rows:
        found = row.cells.get("accuracy")
        if is_empty(found):
            verdicts.append(RULE.make(row.name, "FAIL", "no accuracy was said"))
        else:
            verdicts.append(RULE.make(row.name, "PASS" if "pass" in str(found) else "FAIL", str(found)))
    return verdicts


RULE = Rule(
    name="csv",
    said='every accuracy has "pass" in it; needs no baseline',
    source="check_csv.py",
    words={"PASS": PASS, "FAIL": FAIL},
    check=check,
    applies=need_columns("accuracy"),
    needs_baseline=False,
)
