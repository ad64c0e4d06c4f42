"""Guard trees that torch 2.11 (CUDA) and 2.13 (CPU) printed, whole and damaged."""

from __future__ import annotations

import json
import lzma
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.decode.guard_tree import (
    MAXIMUM_DEPTH,
    GuardNode,
    GuardTree,
    is_check,
    parse_guards,
    summarize_guards,
    walk,
)
from tests.unit.decode.recorded_logs import FOLDER

NAMES = ("broken", "dict_keys", "dynamic", "dynamic_wider", "static", "alias")


@cache
def texts() -> dict[str, str]:
    loaded: dict[str, str] = json.loads(
        lzma.decompress((FOLDER / "guard-trees.json.xz").read_bytes())
    )
    return loaded


def tree(name: str) -> GuardTree:
    tree = parse_guards(texts()[name])
    assert tree is not None
    return tree


def checks(name: str, guard_type: str) -> list[GuardNode]:
    return [
        node
        for _depth, node in walk(tree(name))
        if is_check(node) and node.guard_type == guard_type
    ]


@pytest.mark.parametrize("name", NAMES)
def test_parse_keeps_every_line_in_torchs_order(name: str) -> None:
    nodes = list(walk(tree(name)))
    assert len(nodes) == texts()[name].count("+- ")
    assert {node.kind for _depth, node in nodes} == {"manager", "guard"}
    assert [depth for depth, _node in nodes] == [
        line.index("+- ") // 2 for line in texts()[name].split("\n") if "+- " in line
    ]


def test_parse_reads_a_manager_and_its_guard() -> None:
    (guard,) = [node for node in checks("broken", "TENSOR_MATCH") if node.source == "L['x']"]
    assert guard.code is not None and guard.code.endswith("size=[32, 64], stride=[64, 1])")
    assert guard.user_line == "return F.linear(input, self.weight, self.bias)"
    assert (guard.file, guard.line, guard.function, guard.hint) == (
        "linear.py",
        134,
        "forward",
        None,
    )
    manager = next(
        node for _depth, node in walk(tree("broken")) if node.source == "L['self']._modules['a']"
    )
    assert manager.accessor == "DictGetItemGuardAccessor('a')"
    assert manager.value_type == "<class 'torch.nn.modules.linear.Linear'>"
    assert tree("broken").latency_us == 57.25


def test_parse_reads_hints_and_strings_that_look_like_comments() -> None:
    guards = {node.source: node for node in checks("dict_keys", "EQUALS_MATCH")}
    assert guards["L['s'].xs[2]"].code == "L['s'].xs[2] == '# hash  # x in y'"
    assert guards["L['s'].d['a\\nb']"].hint is not None
    assert (
        guards["list(dict.keys(L['s'].d))[1]"].code == "list(dict.keys(L['s'].d))[1] == 'q\"u\\'o'"
    )
    pair = next(
        node for _depth, node in walk(tree("dict_keys")) if node.guard_type == "KeyValueManager"
    )
    assert (pair.accessor, [child.guard_type for child in pair.children]) == (
        "pair at index=0",
        ["KeyManager", "ValueManager"],
    )


def test_parse_keeps_what_torch_says_beside_shape_guards() -> None:
    last = [node for node in tree("dynamic").nodes if node.kind == "guard"]
    assert last[-1].code == "2 <= L['b'].size()[1]"
    assert last[-1].remark is not None and "0/1 specialization" in last[-1].remark
    assert last[0].remark == "(unknown source L['b'].stride()[0], please file a bug)"


def test_parse_joins_a_guard_of_several_lines() -> None:
    text = (
        "\nTREE_GUARD_MANAGER:\n+- RootGuardManager\n| +- ID_MATCH: f(L['x'], type=<A\n of b>) "
        " # g(x)  # a.py:3 in g\n"
    )
    (node,) = [
        node for _depth, node in walk(parse_guards(text) or GuardTree(())) if node.kind == "guard"
    ]
    assert (node.code, node.line) == ("f(L['x'], type=<A\n of b>)", 3)


def test_summary_counts_types_and_roots() -> None:
    summary = summarize_guards(tree("dynamic"))
    assert summary["guard_count"] == sum(summary["kinds"].values()) == 32
    assert summary["kinds"]["TENSOR_MATCH"] == 3
    assert summary["roots"] == [["L['a']", 11], ["L['b']", 11], ["L['w']", 6], ["global state", 4]]
    assert (summary["latency_us"], summary["depth"], summary["manager_count"]) == (157.32, 3, 4)


def test_older_list_of_guards_is_read() -> None:
    frames = [{"line": 7, "name": "f", "filename": "/srv/a.py", "loc": "x * k"}]
    entries = [{"code": "L['k'] == 1", "stack": None, "user_stack": frames}, {"code": 3}, "x"]
    tree = parse_guards(json.dumps(entries))
    assert tree is not None and [node.user_line for node in tree.nodes] == ["x * k"]
    assert summarize_guards(tree)["kinds"] == {"not recorded": 1}
    assert summarize_guards(tree)["roots"] == [["L['k']", 1]]


@pytest.mark.parametrize("text", ["", "[", "[1, 2]", "{}", "Guard latency = 3 us", "\ud800"])
def test_other_text_is_no_tree(text: str) -> None:
    assert parse_guards(text) is None


def test_deep_trees_stay_within_bounds() -> None:
    lines = [
        f"{'| ' * depth}+- GuardManager: source=L['x']{'.a' * depth}" for depth in range(2_000)
    ]
    tree = parse_guards("TREE_GUARD_MANAGER:\n" + "\n".join(lines))
    assert tree is not None
    depths = [depth for depth, _node in walk(tree)]
    assert (len(depths), max(depths)) == (2_000, MAXIMUM_DEPTH)


@given(st.sampled_from(NAMES), st.data())
def test_damage_never_raises(name: str, data: st.DataObject) -> None:
    text = texts()[name]
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 300))
    with_noise = text[:start] + data.draw(st.text(max_size=30)) + text[start + length :]
    tree = parse_guards(with_noise[: data.draw(st.integers(0, len(with_noise)))])
    if tree is not None:
        assert summarize_guards(tree)["guard_count"] <= with_noise.count("+- ")
