"""What `make versions` runs and writes: no torch is needed to check it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools import torch_versions

CASE = '<testcase classname="tests.integration.test_failed_guards" name="test_a">{}</testcase>'
FEATURE = "every failed guard of a recompile"


def test_the_table_of_torch_versions_is_what_was_run() -> None:
    text = torch_versions.PAGE.read_text(encoding="utf-8")
    assert torch_versions.fill_page(text) == text, "python -m tests.tools.torch_versions table"


def test_every_test_of_a_feature_is_there() -> None:
    missing = []
    for test in torch_versions.list_tests():
        path, _, name = test.partition("::")
        text = (torch_versions.ROOT / path).read_text(encoding="utf-8")
        missing += [] if f"def {name.partition('[')[0]}" in text else [test]
    assert missing == []


@pytest.mark.parametrize(
    ("outcomes", "cell", "notes"),
    [
        (["", ""], "yes", []),
        (['<skipped message="no event" />'], "no (1)", ["no event"]),
        (["", '<skipped message="no event" />'], "in part (1)", ["no event"]),
        (["", "<failure />"], "fails (1)", ["`tests/integration/test_failed_guards.py::test_a`"]),
    ],
)
def test_a_feature_is_what_came_of_its_tests(
    tmp_path: Path, outcomes: list[str], cell: str, notes: list[str]
) -> None:
    junit = tmp_path / "junit.xml"
    junit.write_text(f"<testsuite>{''.join(map(CASE.format, outcomes))}</testsuite>")
    features = torch_versions.read_results(junit)
    result = {
        "torch": "2.9.1",
        "python": "3.12.1",
        "date": "today",
        "metrics_fields": 9,
        "missing": {},
    }
    lines = list(torch_versions.write_table([{**result, "features": features}]))
    assert (f"- {FEATURE}" if cell == "yes" else f"| {FEATURE} | {cell} |") in lines
    assert [line.partition(". ")[2] for line in lines if line[:1].isdigit()] == notes
    assert "| `try` | not run |" in lines


def test_a_test_that_was_run_again_counts_as_it_ended_then(tmp_path: Path) -> None:
    paths = [tmp_path / "first.xml", tmp_path / "again.xml"]
    for path, outcome in zip(paths, ("<failure />", "")):
        path.write_text(f"<testsuite>{CASE.format(outcome)}</testsuite>")
    both = torch_versions.read_results(*paths)[FEATURE]
    assert (both["passed"], both["failed"]) == (1, [])
