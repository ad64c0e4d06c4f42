"""Rules named after upstream's checkers, held against what those checkers said of the same files.

`tests/data/checks/upstream_verdicts.json` was recorded from upstream's own scripts (pandas 2.3).
Their words are kept
per model where they print one: check_perf_csv.py names only what fails, check_csv.py prints none.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.checks.model import FAIL, IMPROVED, RuleInput, RuleOptions, Side
from compileboard.app.checks.rules import counts, find_rules
from compileboard.app.checks.upstream_csv import read_table

DATA = Path(__file__).parents[3] / "data" / "checks"
RECORDED: list[dict[str, Any]] = json.loads((DATA / "upstream_verdicts.json").read_text())
FLAKY = frozenset(("yolov3", "detectron2_maskrcnn_r_101_c4", "XGLMForCausalLM"))
FLAKY_OF = {  # each checker has its own set
    "accuracy": FLAKY | {"moondream", "mobilenetv3_large_100", "vision_maskrcnn"},
    "graph-breaks": FLAKY | {"detectron2_fcos_r_50_fpn"},
    "graph-breaks-exact": FLAKY | {"detectron2_fcos_r_50_fpn"},
}


def _sides(case: dict[str, Any]) -> tuple[Side, Side]:
    return read_table(str(DATA / case["actual"])), read_table(
        str(DATA / (case["expected"] or case["actual"]))
    )


@pytest.mark.parametrize(
    "case", RECORDED, ids=lambda case: f"{case['rule']}-{case['actual']}-{case['exit_code']}"
)
def test_rule_says_what_upstreams_checker_said(case: dict[str, Any]) -> None:
    (rule,) = find_rules([case["rule"]])
    options = RuleOptions(flaky=FLAKY_OF.get(rule.name, frozenset()), **case["options"])
    verdicts = rule.check(*_sides(case), options)
    assert (
        int(any(verdict.outcome in (FAIL, IMPROVED) for verdict in verdicts)) == case["exit_code"]
    )
    reported = [
        [verdict.name, verdict.verdict]
        for verdict in verdicts
        if rule.name != "performance" or verdict.verdict != "PASS"
    ]
    if rule.name == "pr-time" and any(verdict.verdict == "MISSING" for verdict in verdicts):
        assert (
            case["verdicts"] == reported[: len(case["verdicts"])]
        )  # upstream stops at the first that is missing
    elif case["verdicts"]:
        assert sorted(reported) == sorted(case["verdicts"])


def test_every_verdict_of_upstreams_rules_is_recorded() -> None:
    recorded = {(case["rule"], word) for case in RECORDED for _name, word in case["verdicts"]}
    # check_csv.py prints no word; a duplicate has no verdict of its own there; a missing number
    # stops check_perf_csv.py with a traceback, and a missing benchmark check_results.py.
    silent = {
        ("csv", "PASS"),
        ("csv", "FAIL"),
        ("performance", "PASS"),
        ("performance", "MISSING"),
        ("pr-time", "MISSING"),
    }
    unread = {("graph-breaks-exact", "INVALID")}  # upstream's older checker ends with a ValueError
    unread |= {
        ("memory", word) for word in ("FEW_SAMPLES", "NOISE", "WRONG_ANSWER")
    }  # of our own runs, which that checker never sees
    rules = find_rules(
        [
            "accuracy",
            "graph-breaks",
            "graph-breaks-exact",
            "csv",
            "performance",
            "memory",
            "pr-time",
        ]
    )
    assert {
        (rule.name, word) for rule in rules for word in rule.words
    } - silent - unread <= recorded


def test_new_baseline_of_pr_time_is_upstreams() -> None:
    case = next(recorded for recorded in RECORDED if "proposed" in recorded)
    assert [
        [str(cell) for cell in row] for row in counts.propose_expected(*_sides(case), RuleOptions())
    ] == case["proposed"]


@given(st.integers(min_value=0, max_value=10**15))
def test_rounding_down_keeps_four_digits(number: int) -> None:
    rounded = counts.round_down(number)
    assert rounded <= number < rounded + 10 ** max(0, len(str(number)) - 4)
    assert str(rounded)[:4] == str(number)[:4]


def test_what_upstreams_checkers_end_on_is_said() -> None:
    (rule,) = find_rules(["graph-breaks-exact"])
    side = Side("a", (RuleInput("m", {"graph_breaks": "1", "unique_graphs": "many"}),))
    assert [rule_verdict.verdict for rule_verdict in rule.check(side, side, RuleOptions())] == [
        "INVALID"
    ]
    (rule,) = find_rules(["performance"])
    assert [
        rule_verdict.verdict for rule_verdict in rule.check(side, side, RuleOptions(threshold=1.0))
    ] == ["MISSING"]
