"""Each fix of a graph break is run: before breaks the graph that way, after makes one graph with an equal result."""

from __future__ import annotations

from pathlib import Path

import pytest

from compileboard.collectors.fixes.breaks.catalogue import BREAK_FIXES
from compileboard.collectors.fixes.fix import Fix
from tests.integration.fixes.running import is_equal, run_text

pytestmark = pytest.mark.torch
CONSEQUENCES = {"GB0092"}  # what another break leaves cannot be rebuilt
RAISES = {"try_condition": "RuntimeError when making fake tensor call"}  # the compiled program ends, with GB4315

SILENT = {"function_pure", "print_removed"}  # their cost says so

FIXES = [pytest.param(fix, id=fix.id) for fix in BREAK_FIXES.values()]


@pytest.mark.parametrize("fix", FIXES)
def test_before_makes_the_break_that_the_fix_is_for(fix: Fix, tmp_path: Path) -> None:
    before = run_text(fix.before, tmp_path)
    if fix.id in RAISES:
        assert RAISES[fix.id] in str(before.error)
        return
    assert before.error is None
    assert before.graph_breaks[0].gb_id in fix.keys
    assert set(before.gb_ids) - CONSEQUENCES <= set(fix.keys)


@pytest.mark.parametrize("fix", [param for param in FIXES if param.values[0].after is not None])
def test_after_is_one_graph_with_an_equal_result(fix: Fix, tmp_path: Path) -> None:
    expected = run_text(fix.before, tmp_path, "eager")
    after = run_text(str(fix.after), tmp_path, "fullgraph")
    assert (expected.error, after.error) == (None, None)
    assert (after.trouble_count, after.graph_count > 0) == (0, True)
    assert is_equal(after.result, expected.result), (after.result, expected.result)
    assert after.printed == ("" if fix.id in SILENT else expected.printed)


@pytest.mark.parametrize("fix", [param for param in FIXES if param.values[0].settings])
def test_a_setting_is_all_that_differs(fix: Fix) -> None:
    assert fix.after is not None
    added = [line[1:] for line in fix.diff if line.startswith("+") and line[1:].strip()]
    removed = [line for line in fix.diff if line.startswith("-")]
    assert (tuple(added), removed) == (fix.settings, [])
