"""The catalogue's files: programs that parse, titles that fill, kinds that exist."""

from __future__ import annotations

import ast
import string

import pytest

from compileboard.collectors.contract.categories import CATEGORIES
from compileboard.collectors.decode.break_texts import lookup
from compileboard.collectors.fixes.fix import CATALOGUE, Fix, find_fix, list_fixes, parse_fix

BREAK_FIXES, RECOMPILE_FIXES = list_fixes("graph_break"), list_fixes("recompile")
CUDAGRAPH_FIXES = list_fixes("cudagraph")
BLANKS: dict[str, set[str]] = {
    "cudagraph": set(),
    "graph_break": {
        "expression",
        "call",
        "condition",
        "tensor",
        "mask",
        "function",
        "place",
        "broken",
        "calling",
        "doing",
        "tested",
    },
    "recompile": {
        "source",
        "sources",
        "dim",
        "value",
        "dimensions",
        "others",
        "name",
        "symbol",
        "expected",
        "expression",
        "item",
        "before",
        "scheduled",
        "entries",
        "kept",
    },
}


def test_at_least_thirty_kinds_of_graph_break_have_a_fix_that_removes_them() -> None:
    gb_ids = {key for fix in BREAK_FIXES if fix.after for key in fix.keys}
    assert len(gb_ids) >= 30
    assert [gb_id for gb_id in gb_ids if lookup(gb_id) is None] == []


def test_every_guard_category_has_a_fix() -> None:
    assert {key for fix in RECOMPILE_FIXES for key in fix.keys} == {
        category.name for category in CATEGORIES if category.name != "several"
    }


@pytest.mark.parametrize(
    "fix", (*BREAK_FIXES, *RECOMPILE_FIXES, *CUDAGRAPH_FIXES), ids=lambda fix: fix.id
)
def test_a_fix_is_short_and_whole(fix: Fix) -> None:
    for text in filter(None, (fix.before, fix.after)):
        assert "import torch" in text and "result" in text
        assert len([line for line in text.splitlines() if line]) <= 25
        ast.parse(text)
    assert {name for _, name, _, _ in string.Formatter().parse(fix.title) if name} <= BLANKS[
        fix.kind
    ]
    assert fix.applies and fix.cost and "{" not in fix.applies + fix.cost
    assert bool(fix.diff) or fix.after is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("- cost: ", "- price: "),
        ("## Before", "## Earlier"),
        ("- for: ", "for "),
        ("- for: GB0170\n", ""),
    ],
)
def test_a_file_that_is_not_as_described_is_named(old: str, new: str) -> None:
    text = (CATALOGUE / "graph_break" / "if_where.md").read_text(encoding="utf-8")
    assert parse_fix("graph_break", "if_where", text) == find_fix("graph_break", "if_where")
    with pytest.raises(ValueError, match=r"catalogue/graph_break/if_where\.md .*README"):
        parse_fix("graph_break", "if_where", text.replace(old, new))
