"""The pages of a run's guards: sums and advice, one set as a tree, two sets compared."""

from __future__ import annotations

import re
import sqlite3

import pytest
from flask.testing import FlaskClient

from compileboard.app.guards import run_queries as guards
from compileboard.app.guards.model import (
    build_view,
    filter_tree,
    find_origin,
    list_origins,
    list_rows,
    number_nodes,
    suggest_guard_fixes,
    sum_guards,
    take_subtree,
)
from compileboard.collectors.decode.guard_tree import count_guards
from compileboard.collectors.store.payloads import is_check, walk
from tests.unit.app.hostile import MARKUP
from tests.unit.app.traced import RUN, record_traced_run
from tests.unit.decode.test_guard_tree_text import NAMES, texts, tree


def _explored(reader: sqlite3.Connection, name: str = "zoo_recompiles") -> str:
    return str(reader.execute("select id from runs where name = ?", (name,)).fetchone()[0])


def test_sums_of_recorded_sets_agree_with_each_set() -> None:
    summaries = [count_guards(text) or {} for text in texts().values()]
    sums = sum_guards(summaries)
    assert sums.guard_count == sum(summary["guard_count"] for summary in summaries) > 100
    assert sum(count for _kind, count in sums.kinds) == sums.guard_count
    assert sum(count for _root, count in sums.roots) + sums.other_root_count == sums.guard_count
    assert sum(origin.guard_count for origin in list_origins(sums)) == sums.guard_count


@pytest.mark.parametrize(
    ("root", "origin"),
    [
        ("L['self']", "self"),
        ("L['x']", "local"),
        ("G['__import_torch_dot_nn_dot_modules_dot_conv']", "torch"),
        ("G['torch']", "torch"),
        ("G['__import_torchvision_dot_models']", "global"),
        ("G['__builtins_dict___0']", "global"),
        ("global state", "ambient"),
    ],
)
def test_a_root_is_of_one_origin(root: str, origin: str) -> None:
    assert find_origin(root) == origin


def test_advice_is_given_where_it_fits_and_nowhere_else() -> None:
    module = sum_guards(
        [{"guard_count": 100, "kinds": {}, "roots": [["L['self']", 90], ["global state", 10]]}]
    )
    assert [
        guard_fix.code.count("inbuilt_nn")
        for guard_fix in suggest_guard_fixes(list_origins(module), 200.0)
    ] == [1, 0]
    plain = sum_guards(
        [{"guard_count": 10, "kinds": {}, "roots": [["L['x']", 9], ["global state", 1]]}]
    )
    assert suggest_guard_fixes(list_origins(plain), 200.0) == []
    assert list_origins(sum_guards([])) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_branch_of_a_laid_out_tree_ends(name: str) -> None:
    guard_tree = tree(name)
    rows = list_rows(build_view(guard_tree, limit=12), number_nodes(guard_tree))
    assert [row.step for row in rows].count("branch") == [row.step for row in rows].count("end")
    open_branches = []
    for row in rows:
        if row.step == "branch":
            open_branches.append(row.number)
        elif row.step == "end":
            assert open_branches.pop() == row.number
    assert take_subtree(guard_tree, len(number_nodes(guard_tree))) is None


def test_filter_keeps_what_matches_and_what_leads_there() -> None:
    whole = tree("broken")
    filtered = filter_tree(whole, "PRINT")
    checks = [node for _depth, node in walk(filtered) if is_check(node)]
    assert 0 < len(checks) < sum(is_check(node) for _depth, node in walk(whole))
    assert all("print" in repr(node).lower() for node in checks)
    assert filter_tree(whole, "no such text").nodes == ()


def test_page_has_the_sets_largest_latency_first(
    explored_client: FlaskClient, explored_reader
) -> None:
    run_id = _explored(explored_reader)
    latencies = [row.latency_us for row in guards.list_guard_sets(explored_reader, run_id).rows]
    assert latencies == sorted(latencies, reverse=True)
    page = explored_client.get(f"/runs/{run_id}/guards").text
    assert f"{len(latencies)}</dd>" in page
    assert "It times no single guard" in page
    assert explored_client.get(f"/runs/{run_id}/guards?sort=size").status_code == 400


def test_pages_of_sets_have_each_set_once(explored_reader: sqlite3.Connection) -> None:
    run_id = _explored(explored_reader)
    for sort in ("latency", "guards.asc"):
        seen, cursor = [], None
        while True:
            page = guards.list_guard_sets(explored_reader, run_id, sort, cursor, 1)
            seen += [row.id for row in page.rows]
            if (cursor := page.next) is None:
                break
        assert sorted(seen) == [
            guard_set.id
            for guard_set in sorted(
                page_all(explored_reader, run_id), key=lambda guard_set: guard_set.id
            )
        ]


def page_all(reader: sqlite3.Connection, run_id: str) -> tuple[guards.GuardSet, ...]:
    return guards.list_guard_sets(reader, run_id).rows


def test_one_set_is_a_tree_that_can_be_searched(
    explored_client: FlaskClient, explored_reader
) -> None:
    run_id = _explored(explored_reader)
    guard_set = page_all(explored_reader, run_id)[0]
    address = f"/runs/{run_id}/guards/{guard_set.artifact_id}"
    assert (
        explored_client.get(address).text.count("TENSOR_MATCH")
        >= dict(guard_set.kinds)["TENSOR_MATCH"]
    )
    text = explored_client.get(f"{address}?q=TENSOR_MATCH").text
    assert "TENSOR_MATCH" in text
    assert "GLOBAL_STATE" not in text
    assert explored_client.get(f"{address}?at=0&order=largest").status_code == 200
    for query, status in (("at=99999", 404), ("at=x", 400)):
        assert explored_client.get(f"{address}?{query}").status_code == status


def test_two_entries_of_a_frame_say_what_changed(
    explored_client: FlaskClient, explored_reader
) -> None:
    run_id = _explored(explored_reader)
    sets = {guard_set.compile_id: guard_set for guard_set in page_all(explored_reader, run_id)}
    previous = guards.get_previous_set(explored_reader, sets["0/1"].compile_key)
    assert previous == sets["0/0"]
    artifact_id, other = sets["0/0"].artifact_id, sets["0/1"].artifact_id
    page = explored_client.get(f"/runs/{run_id}/guards/diff?a={artifact_id}&b={other}").text
    cells = re.findall(r'<td class="mono brief"[^>]*>([^<]+)</td>', page)
    assert cells[cells.index("[4, 32]") :][:2] == ["[4, 32]", "[8, 32]"]
    assert explored_client.get(f"/runs/{run_id}/guards/diff?a={artifact_id}&b=0").status_code == 404


def test_a_run_without_texts_says_so_and_keeps_its_counts(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    record_traced_run(store, payloads=False)
    number = store.execute("select artifact_id from guard_sets order by id").fetchone()[0]
    page = client.get(f"/runs/{RUN}/guards/{number}").text
    assert "Guards not recorded" in page
    assert "EQUALS_MATCH" in page
    assert (
        "No guards to compare" in client.get(f"/runs/{RUN}/guards/diff?a={number}&b={number}").text
    )


def test_guards_are_other_peoples_text(client: FlaskClient, store: sqlite3.Connection) -> None:
    record_traced_run(store, MARKUP)
    numbers = [
        str(number) for (number,) in store.execute("select artifact_id from guard_sets order by id")
    ]
    for address in (
        "",
        f"/{numbers[0]}",
        f"/{numbers[0]}?q=%3Cscript%3Ealert(1)%3C/script%3E",
        f"/diff?a={numbers[0]}&b={numbers[1]}",
    ):
        page = client.get(f"/runs/{RUN}/guards{address}").text
        assert "<img src=x" not in page
        assert "<script>alert" not in page
        assert "script&gt;49" not in page


def test_a_run_without_guards_says_where_they_come_from(recorded_client, recorded_reader) -> None:
    run_id = recorded_reader.execute("select id from runs limit 1").fetchone()[0]
    assert "--level full" in recorded_client.get(f"/runs/{run_id}/guards").text
