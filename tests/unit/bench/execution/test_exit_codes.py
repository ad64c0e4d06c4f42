"""The exit code of a bench run: that of what was measured."""

from __future__ import annotations

import pytest

from compileboard.collectors.bench.execution.runner import BenchReport, exit_code
from compileboard.collectors.contract.events import BenchMeasured
from compileboard.exit_codes import DONE, EMPTY, FAILED, INTERRUPTED


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (["measured", "failed", "skipped"], DONE),
        (["failed", "failed"], FAILED),
        (["failed", "skipped"], FAILED),
        (["skipped", "skipped"], EMPTY),
        ([], EMPTY),
    ],
)
def test_zero_says_that_something_was_measured(statuses: list[str], code: int) -> None:
    results = [BenchMeasured("p", 0, 0, "s", "m", "performance", status=status) for status in statuses]
    assert exit_code(BenchReport("R", results)) == code
    assert exit_code(BenchReport("R", results, interrupted=True)) == INTERRUPTED
