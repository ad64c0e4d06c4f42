"""What the pages show of a fix: short programs, titles that can be filled, ids of torch's registry."""

from __future__ import annotations

import ast
import string

import pytest

from compileboard.collectors.decode.break_registry import lookup
from compileboard.collectors.fixes.breaks.catalogue import BREAK_FIXES
from compileboard.collectors.fixes.fix import Fix

FIXES = [pytest.param(fix, id=fix.id) for fix in BREAK_FIXES.values()]
PLACEHOLDERS = {"expression", "call", "condition", "tensor", "mask", "function"}


def test_at_least_thirty_kinds_of_graph_break_have_a_fix_that_removes_them() -> None:
    gb_ids = {key for fix in BREAK_FIXES.values() if fix.after for key in fix.keys}
    assert len(gb_ids) >= 30
    assert [gb_id for gb_id in gb_ids if lookup(gb_id) is None] == []


@pytest.mark.parametrize("fix", FIXES)
def test_a_fix_is_short_and_whole(fix: Fix) -> None:
    for text in filter(None, (fix.before, fix.after)):
        assert "import torch" in text and "result" in text
        assert len([line for line in text.splitlines() if line]) <= 20
        ast.parse(text)
    assert fix.kind == "graph_break" and fix.applies and fix.cost
    assert {name for _, name, _, _ in string.Formatter().parse(fix.title) if name} <= PLACEHOLDERS
    assert bool(fix.diff) or fix.after is None
