"""The tree of stacks: recorded ones, and trees made by hand that are deep, wide or hostile."""

from __future__ import annotations

import re
import sqlite3

import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.stacks.model import (
    StackBlock,
    build_block,
    build_tree,
    filter_matching,
    list_callers,
    list_shares,
)
from compileboard.app.stacks.run_queries import StackCompile, StackNode
from compileboard.collectors.contract.library_names import is_library_name
from tests.unit.app.recorded import MARKUP, RUN, record_run


def compiled(
    key: int, stack_id: int | None, total_us: int = 10, outcome: str = "compiled", **more: int
) -> StackCompile:
    return StackCompile(
        key, stack_id, f"{key}/0", outcome, total_us, more.get("rank"), f"f{key}", "m.py", ""
    )


def chain(*files: str) -> list[StackNode]:
    return [
        StackNode(n, n - 1 or None, file, n, f"call{n}") for n, file in enumerate(files, start=1)
    ]


def count_blocks(block: StackBlock) -> int:
    return 1 + sum(count_blocks(child) for child in block.children)


@pytest.fixture
def run_id(explored_reader: sqlite3.Connection) -> str:
    return str(
        explored_reader.execute("select id from runs where name = 'zoo_graph_breaks'").fetchone()[0]
    )


def test_the_page_shows_every_recorded_compile_under_its_caller(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection, run_id: str
) -> None:
    page = explored_client.get(f"/runs/{run_id}/stacks").text
    keys = [
        key
        for (key,) in explored_reader.execute("select id from compiles where run_id = ?", (run_id,))
    ]
    assert keys
    assert [key for key in keys if f"/compiles/{key}" not in page] == []
    assert "library frames ›" in page
    assert "eval_frame.py" not in re.sub(r'title="[^"]*"', "", page)
    assert "eval_frame.py" in explored_client.get(f"/runs/{run_id}/stacks?library=shown").text


def test_the_trie_is_flat_whole_and_sums_up(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    for run_id, count in explored_reader.execute(
        "select run_id, count(*) from compiles group by run_id"
    ):
        rows = explored_client.get(f"/api/v1/runs/{run_id}/trie?limit=1000").json["data"]
        assert sum(len(row["compile_keys"]) for row in rows) == count
        assert all(row["parent_id"] is None or row["parent_id"] < row["id"] for row in rows)
        tops = [row for row in rows if row["parent_id"] is None]
        assert sum(row["compile_count"] for row in tops) == count
        assert all(sum(row["outcomes"].values()) == row["compile_count"] for row in rows)


def test_ranks_are_one_tree_with_a_filter(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    run = explored_reader.execute("select id from runs where name = 'train_ddp'").fetchone()[0]
    whole, of_rank = (
        explored_client.get(f"/runs/{run}/stacks{query}").text for query in ("", "?rank=0")
    )
    assert "15 compiles" in whole
    assert "6 compiles" in of_rank
    assert "No compiles match" in explored_client.get(f"/runs/{run}/stacks?q=nowhere").text


def test_library_frames_fold_and_what_they_called_becomes_one() -> None:
    nodes = [
        StackNode(1, None, "train.py", 9, "main"),
        StackNode(2, 1, "torch/a.py", 1, "a"),
        StackNode(3, 1, "torch/b.py", 1, "b"),
        StackNode(4, 2, "model.py", 5, "forward"),
        StackNode(5, 3, "model.py", 5, "forward"),
    ]
    compiles = [compiled(1, 4), compiled(2, 5, outcome="broke"), compiled(3, None)]
    tree = build_tree(nodes, compiles)
    block = build_block(tree.root)
    assert [node.frame.name for node in block.frames] == ["", "main", "forward"]
    assert [stack_compile.key for stack_compile in block.last.compiles] == [1, 2]
    assert block.first.outcomes == {"compiled": 1, "broke": 1}
    assert [stack_compile.key for stack_compile in tree.without_stack] == [3]
    assert len(build_block(build_tree(nodes, compiles, library=True).root).children) == 2


def test_a_library_frame_that_was_compiled_itself_stays() -> None:
    tree = build_tree(chain("train.py", "torch/a.py", "contextlib.py"), [compiled(1, 3)])
    assert [node.frame.file for node in build_block(tree.root).frames[1:]] == [
        "train.py",
        "contextlib.py",
    ]
    assert [stack_node.file for stack_node in build_block(tree.root).last.folded] == ["torch/a.py"]
    assert [caller.frame.file for caller in list_callers(tree.nodes[3])] == ["train.py"]


def test_a_page_lays_out_no_more_than_it_can_and_says_what_is_left() -> None:
    nodes = [
        StackNode(1, None, "m.py", 1, "main"),
        *(StackNode(n, 1, "m.py", n, "f") for n in range(2, 5002)),
    ]
    tree = build_tree(nodes, [compiled(n, n, total_us=n) for n in range(2, 5002)])
    block = build_block(tree.root, max_count=50)
    assert [child.first.total_us for child in block.children] == list(range(5001, 4951, -1))
    assert len(block.hidden) == 4950
    assert [child.first.total_us for child in build_block(tree.root, 50, max_count=1).children] == [
        4951
    ]


def test_a_stack_of_500_frames_is_one_short_block() -> None:
    tree = build_tree(chain(*["m.py"] * 500), [compiled(1, 500)])
    shown = build_block(tree.root).shown
    assert len(shown) == 10
    assert 492 in shown


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.booleans(), st.integers(0, 3)), min_size=1, max_size=60
    ),
    st.booleans(),
)
def test_no_compile_is_lost_and_sums_hold(made: list[tuple[int, bool, int]], library: bool) -> None:
    nodes = [
        StackNode(n, min(parent, n - 1) or None, "torch/x.py" if lib else "m.py", parent, "f")
        for n, (parent, lib, _count) in enumerate(made, start=1)
    ]
    compiles = [
        compiled(n * 10 + k, n)
        for n, (_p, _l, count) in enumerate(made, start=1)
        for k in range(count)
    ]
    tree = build_tree(nodes, compiles, library=library)
    block = build_block(tree.root, max_count=10_000)
    assert (
        tree.root.compile_count
        == len(compiles)
        == sum(len(node.compiles) for node in tree.nodes.values())
    )
    assert tree.root.total_us == 10 * len(compiles)
    assert count_blocks(block) <= len(nodes) + 1


def test_filters_look_at_every_frame_of_a_stack() -> None:
    nodes, compiles = (
        chain("train.py", "model.py"),
        [compiled(1, 2, rank=0), compiled(2, 1, outcome="failed", rank=1)],
    )

    def list_keys(text: str = "", outcome: str = "", rank: int | None = None) -> list[int]:
        return [
            stack_compile.key
            for stack_compile in filter_matching(
                nodes, compiles, text=text, outcome=outcome, rank=rank
            )
        ]

    assert list_keys("TRAIN.py:1") == [1, 2]
    assert list_keys("model") == [1]
    assert list_keys(outcome="failed") == [2]
    assert list_keys(rank=0) == [1]
    assert [
        (share.outcome, share.width) for share in list_shares({"failed": 1, "compiled": 3})
    ] == [
        ("compiled", 75.0),
        ("failed", 25.0),
    ]


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("torch/x.py", True),
        ("contextlib.py", True),
        ("json/decoder.py", True),
        ("train.py", False),
        ("src/torch/x.py", False),
    ],
)
def test_library_files_are_told_from_the_users(file: str, library: bool) -> None:
    assert is_library_name(file) is library


@pytest.mark.parametrize(
    ("query", "status"),
    [("outcome=good", 400), ("rank=x", 400), ("library=1", 400), ("node=999999", 404)],
)
def test_a_bad_address_is_refused(
    explored_client: FlaskClient, run_id: str, query: str, status: int
) -> None:
    assert explored_client.get(f"/runs/{run_id}/stacks?{query}").status_code == status


def test_hostile_frames_stay_text_and_a_run_without_stacks_says_so(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    record_run(store)
    store.execute("update stack_nodes set name = ?, code = ?", (MARKUP, MARKUP))
    store.commit()
    page = client.get(f"/runs/{RUN}/stacks?library=shown").text
    assert MARKUP not in page
    assert "&lt;b onclick=x&gt;" in page
    store.execute("update compiles set stack_id = null")
    store.execute("delete from stack_nodes")
    store.commit()
    assert "No stacks recorded" in client.get(f"/runs/{RUN}/stacks").text
