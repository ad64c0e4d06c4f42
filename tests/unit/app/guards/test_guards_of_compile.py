"""Guard trees, and changes between two of them, as torch 2.11 and 2.13 printed them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.artifacts.text import FieldChange
from compileboard.app.guards.model import ViewNode, build_view, compare_guards, explain_cost
from compileboard.collectors.store.payloads import GuardTree, parse_guards
from tests.unit.decode.test_guard_tree_text import NAMES, texts, tree


def _read(text: str) -> GuardTree:
    tree = parse_guards("TREE_GUARD_MANAGER:\n+- RootGuardManager\n" + text)
    assert tree is not None
    return tree


def _rows(nodes: tuple[ViewNode, ...]) -> list[ViewNode]:
    return [row for node in nodes for row in (node, *_rows(node.children))]


def test_view_folds_chains_and_counts_subtrees() -> None:
    view = build_view(tree("broken"), open_depth=2)
    root = view.nodes[0]
    assert (view.guard_count, root.guard_count, root.share_ratio) == (23, 23, 1.0)
    folded = next(row for row in _rows(view.nodes) if row.steps)
    assert folded.steps == ("G['__builtins_dict___1']",)
    assert folded.node.source == "G['__builtins_dict___1']['print']"
    assert [row.is_open for row in (root, folded)] == [True, False]


@pytest.mark.parametrize("limit", [0, 1, 7, 30, 10_000])
def test_view_counts_what_the_limit_leaves_out(limit: int) -> None:
    view = build_view(tree("dict_keys"), limit=limit, largest_first=True)
    rows = _rows(view.nodes)
    assert len(rows) <= limit
    shown = sum(row.node.kind == "guard" and row.node.code is not None for row in rows)
    assert (view.guard_count, shown + view.hidden_count) == (65, 65)
    sizes = [child.guard_count for child in view.nodes[0].children] if rows else []
    assert sizes == sorted(sizes, reverse=True)


def test_cost_is_called_what_it_is() -> None:
    cost = build_view(tree("dynamic")).cost
    assert cost.startswith("Checking the set of 32 guards took 157")
    assert "times no single guard" in cost and "estimate" in cost
    assert explain_cost(None, 1) == "1 guard; this record has no time for them."


def test_compare_spells_out_a_size_that_became_dynamic() -> None:
    diff = compare_guards(tree("static"), tree("dynamic"))
    assert [change.fields for change in diff.changed] == [
        (FieldChange("size", "[4, 5]", "[None, 5]"),),
        (FieldChange("size", "[3, 6]", "[3, None]"), FieldChange("stride", "[6, 1]", "[None, 1]")),
    ]
    assert diff.removed == () and "2 <= L['a'].size()[0]" in [node.code for node in diff.added]
    assert diff.same_count + len(diff.changed) + len(diff.added) == 32


def test_compare_names_the_setting_that_changed() -> None:
    old = _read(
        '| +- GLOBAL_STATE: ___check_global_state() against {"grad_mode":true,"num_threads":2}'
    )
    new = _read(
        '| +- GLOBAL_STATE: ___check_global_state() against {"grad_mode":false,"num_threads":2}'
    )
    (change,) = compare_guards(old, new).changed
    assert change.fields == (FieldChange("grad_mode", "true", "false"),)


def test_numbers_of_another_process_are_no_change() -> None:
    text = texts()["broken"]
    other = (
        text.replace("__builtins_dict___1", "__builtins_dict___7")
        .replace(", 1402", ", 1399")
        .replace("0x7f", "0x3e")
    )
    diff = compare_guards(tree("broken"), parse_guards(other) or GuardTree(()))
    assert (diff.added, diff.removed, diff.changed, diff.same_count) == ((), (), (), 23)
    assert {change.after.guard_type for change in diff.identities} == {"ID_MATCH"}
    assert compare_guards(tree("broken"), tree("broken")).identities == ()


def test_a_flag_that_flipped_is_a_change_and_a_large_number_is_no_id() -> None:
    text = (
        "| +- GuardManager: source=L['k'], accessed_by=X, type=<class 'int'>, tag_safe=(True, "
        "False)\n"
    )
    old = _read(
        f"{text}| | +- EQUALS_MATCH: L['k'] == 1000000\n| +- DICT_CONTAINS: not "
        "___dict_contains('a', D)"
    )
    new = _read(
        f"{text}| | +- TRUE_MATCH: L['k'] == True\n| +- DICT_CONTAINS: ___dict_contains('a', D)"
    )
    diff = compare_guards(old, new)
    assert diff.changed[0].fields == (FieldChange("value", "1000000", "True"),)
    assert diff.changed[1].fields == (
        FieldChange("code", "not ___dict_contains('a', D)", "___dict_contains('a', D)"),
    )


@given(st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(0, 30_000))
def test_compare_and_view_take_damaged_trees(old: str, new: str, cut: int) -> None:
    before, after = tree(old), parse_guards(texts()[new][:cut]) or GuardTree(())
    forth, back = compare_guards(before, after), compare_guards(after, before)
    assert (len(forth.added), len(forth.removed)) == (len(back.removed), len(back.added))
    assert (forth.same_count, len(forth.changed)) == (back.same_count, len(back.changed))
    view = build_view(after, limit=20)
    assert view.hidden_count <= view.guard_count
