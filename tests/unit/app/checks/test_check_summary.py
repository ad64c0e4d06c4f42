"""A check as Markdown, for a job's summary and a pull request's comment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compileboard.app.checks.decision import compare
from compileboard.app.checks.model import (
    IMPROVED,
    CannotCompare,
    RuleInput,
    RuleOptions,
    Side,
)
from compileboard.app.checks.rules import RULES
from compileboard.app.comparison.queries import DistinctItem
from compileboard.app.reports.check_report import write_markdown

BASE = Side("run A", (), breaks=(), causes=(), name="train.py", commit="aaaaaaa")
NEW = replace(BASE, title="run B", commit="bbbbbbb")


def make_break(fingerprint: str, model: str | None = None) -> DistinctItem:
    return DistinctItem(fingerprint, "GB0059", "call of print", "forward", "m.py", 3, 2, model)


def write(new: Side, base: Side = BASE, **options: bool) -> list[str]:
    report = compare(new, base, (), RuleOptions())
    return write_markdown(report, {"x": "Remove the call"}, **options).splitlines()


def test_what_fails_comes_first_with_its_fix_and_the_rules_are_folded() -> None:
    lines = write(replace(NEW, breaks=(make_break("x"), make_break("y"))))
    assert lines[:4] == [
        "### ❌ 2 new graph breaks",
        "",
        "train.py · aaaaaaa → bbbbbbb · run B against run A",
        "",
    ]
    assert lines[4] == "| Verdict | Rule | Why |"
    assert "<br>Fix: Remove the call |" in lines[6] and "Fix" not in lines[7]
    assert "<details><summary>Rules: 1 failed, 1 passed, 7 not compared</summary>" in lines


def test_models_that_share_a_break_have_one_and_nothing_worse_is_said_of_rules() -> None:
    rows = tuple(RuleInput(name, {"status": "measured"}, key=name) for name in ("cnn", "mlp"))
    base = replace(BASE, rows=rows)
    new = replace(NEW, rows=rows, breaks=(make_break("x", "cnn"), make_break("x", "mlp")))
    assert write(new, base)[0] == "### ❌ 1 new graph break"
    assert write(replace(new, breaks=()), base)[0] == "### ✅ Nothing worse by 3 rules"
    assert write(replace(new, breaks=()), new)[0].startswith(
        "### ✅ 1 graph break resolved, nothing worse by"
    )


def test_a_pull_request_says_that_merging_moves_the_base() -> None:
    new = replace(NEW, breaks=(make_break("x"),))
    assert any("baseline save NAME" in line for line in write(new))
    texts = write(new, in_pull_request=True)
    assert any(line.startswith("If these changes are meant, merge them") for line in texts)
    assert not any("baseline save" in line for line in texts)


def test_a_program_that_failed_is_named() -> None:
    failed = replace(BASE, breaks=None, causes=None, failure="ended with exit code 4")
    with pytest.raises(
        CannotCompare,
        match=r"^nothing can be compared: the base, train.py at aaaaaaa \(run A\), ended",
    ):
        write(NEW, failed)
    lines = write(NEW, replace(BASE, failure="ended with exit code 1"))
    assert (
        "> ⚠️ train.py at aaaaaaa (run A) ended with exit code 1: what it did not reach is not "
        "compared"
    ) in lines


@pytest.mark.parametrize("is_allowed", [False, True])
def test_an_improvement_fails_where_it_is_not_allowed(is_allowed: bool) -> None:
    rule = replace(RULES[0], words={"BETTER": IMPROVED}, find=lambda *_: iter([("cnn", "BETTER")]))
    (verdict,) = rule.check(NEW, BASE, RuleOptions(allow_improvement=is_allowed))
    assert verdict.fails is not is_allowed


def test_a_side_without_models_has_breaks_to_compare() -> None:
    rows = (RuleInput("cnn", {"status": "measured"}, key="cnn"),)
    broken = replace(NEW, breaks=(make_break("x"),))
    assert compare(broken, replace(BASE, rows=rows), (), RuleOptions()).exit_code == 1
    assert compare(replace(broken, rows=rows), BASE, (), RuleOptions()).exit_code == 1
    with pytest.raises(CannotCompare, match="no model in common: cnn against net"):
        other = (RuleInput("net", {"status": "measured"}, key="net"),)
        compare(replace(NEW, rows=rows), replace(BASE, rows=other), (), RuleOptions())
