"""One look-up in a cache: its key, the nearest earlier one, the difference; the Caches tab."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.caches.model import (
    build_lookup,
    compare_keys,
    find_nearest,
    group_components,
    measure_likeness,
    read_lines,
    summarize_diff,
)
from compileboard.app.caches.run_queries import get_lookup, list_earlier, list_runs_before
from compileboard.collectors.store.payloads import parse_components
from tests.unit.app.hostile import MARKUP
from tests.unit.app.traced import RUN, record_traced_run


def _misses(reader: sqlite3.Connection, cache: str = "fx_graph") -> list[tuple[str, int, str]]:
    cursor = reader.execute(
        "select run_id, id, compile_id from cache_lookups where cache = ? and result = 'miss' "
        "and run_id = "
        "(select id from runs where name = 'zoo_recompiles') order by time_us, id",
        (cache,),
    )
    return [tuple(row) for row in cursor]


def _key(parts: dict[str, str]) -> str:
    return json.dumps(
        {"components": [f"[{digest * 50}] {name}: {digest}" for name, digest in parts.items()]}
    )


def test_a_recorded_miss_differs_in_the_input_that_grew(
    explored_reader: sqlite3.Connection,
) -> None:
    run_id, number, compile_id = _misses(explored_reader)[1]
    report = build_lookup(explored_reader, run_id, number)
    assert report is not None
    assert report.nearest is not None
    assert report.diff is not None
    assert (compile_id, report.nearest.compile_id) == ("0/1", "0/0")
    assert "shape [4, 32] → [8, 32]" in summarize_diff(report.diff)
    assert report.diff.same_count > 500


@pytest.mark.parametrize("cache", ["fx_graph", "aot_autograd"])
def test_the_first_miss_has_nothing_before_it(
    explored_client: FlaskClient, explored_reader, cache: str
) -> None:
    run_id, number, _compile_id = _misses(explored_reader, cache)[0]
    page = explored_client.get(f"/runs/{run_id}/caches/{number}").text
    assert "First lookup of this function." in page
    assert (
        "There is no earlier run of this name"
        in explored_client.get(f"/runs/{run_id}/caches/{number}?runs=before").text
    )


def test_the_nearest_of_several_is_the_latest_of_equals() -> None:
    expected = _key({"gm": "a", "x": "b", "y": "c"})
    keys = [
        {"gm": "z"},
        {"gm": "a", "x": "q", "y": "c"},
        {"gm": "a"},
        {"gm": "a", "x": "r", "y": "c"},
    ]
    earlier = [(n, _key(key)) for n, key in enumerate(keys)]
    damaged = [(4, "not json"), (5, "[1]"), (6, '{"components": [[], 7]}')]
    components = parse_components(expected) or []
    nearest = find_nearest(components, expected, [*earlier, *damaged])
    assert nearest is not None
    assert nearest[0] == 3
    assert nearest[1] == compare_keys(components, parse_components(earlier[3][1]) or [])
    assert find_nearest([], "{}", earlier) is None


@pytest.mark.parametrize("cache", ["fx_graph", "aot_autograd"])
def test_the_key_of_another_model_is_not_comparable(
    explored_reader: sqlite3.Connection, cache: str
) -> None:
    sql = (
        "select x.run_id, x.id from cache_lookups as x join runs as r on r.id = x.run_id where "
        "x.cache = ?"
    )
    sql += " and r.name = ? and x.result = 'miss' order by x.id"
    texts = {}
    for name in ("zoo_graph_breaks", "zoo_recompiles"):
        lookups = (
            get_lookup(explored_reader, *row) for row in explored_reader.execute(sql, (cache, name))
        )
        texts[name] = [
            lookup.text for lookup in lookups if lookup is not None and lookup.text is not None
        ]
    expected, variant = texts["zoo_recompiles"][:2]
    others = [
        ("other", graph_break) for graph_break in texts["zoo_graph_breaks"]
    ]  # each is "forward" of models.py
    components = parse_components(expected) or []
    assert others and find_nearest(components, expected, others) is None
    nearest = find_nearest(components, expected, [("variant", variant), *others])
    assert nearest is not None and nearest[0] == "variant"


def test_a_miss_is_compared_with_keys_of_its_own_function_alone(
    explored_reader: sqlite3.Connection,
) -> None:
    for cache in ("fx_graph", "aot_autograd"):
        for run_id, lookup_id, _compile_id in _misses(explored_reader, cache):
            lookup = get_lookup(explored_reader, run_id, lookup_id)
            assert lookup is not None
            earlier = list_earlier(lambda _run_id: explored_reader, lookup, [run_id])
            assert {row.function_id for row in earlier} <= {lookup.function_id}


def test_likeness_is_the_share_of_calls() -> None:
    text = "y = x.sin();  z = torch.add(y, 1)"
    assert measure_likeness(text, "w = v.sin();  u = torch.add(w, 1)") == 1
    assert measure_likeness(
        text, "y = x.sin();  z = torch.mul(y, 1);  a = z.cos()"
    ) == pytest.approx(1 / 3)
    assert measure_likeness("", "") == 1


@pytest.mark.parametrize(
    "message", ["", "{", "[]", "7", '{"components": 3}', '{"components": {}}', '{"lines": null}']
)
def test_what_is_no_key_has_no_lines(message: str) -> None:
    assert list(read_lines(message)) == []


def test_components_are_grouped_by_what_people_change() -> None:
    parts = (
        parse_components(
            _key({"torch_version": "a", "inductor_config[b]": "b", "inductor_config[a]": "c"})
        )
        or []
    )
    groups = group_components(parts)
    assert [(group.name, len(group.components)) for group in groups] == [
        ("inductor_config", 2),
        ("torch_version", 1),
    ]
    assert all(group.explanation for group in groups)


def test_page_says_what_differs_and_the_tab_leads_there(
    explored_client: FlaskClient, explored_reader
) -> None:
    run_id, number, _compile_id = _misses(explored_reader)[1]
    assert (
        f'href="/runs/{run_id}/caches/{number}"'
        in explored_client.get(f"/runs/{run_id}?tab=caches").text
    )
    page = explored_client.get(f"/runs/{run_id}/caches/{number}").text
    assert "<strong>1 component</strong> differs" in page
    assert "inductor_config × " in page
    assert explored_client.get(f"/runs/{run_id}/caches/999999").status_code == 404
    assert explored_client.get(f"/runs/{run_id}/caches/{number}?runs=all").status_code == 400


def test_a_bypass_says_why_and_where(
    recorded_client: FlaskClient, recorded_reader: sqlite3.Connection
) -> None:
    run_id, number, reason = recorded_reader.execute(
        "select run_id, id, reason from cache_lookups where result = 'bypass' and reason is "
        "not null limit 1"
    ).fetchone()
    page = recorded_client.get(f"/runs/{run_id}/caches/{number}").text
    assert reason.replace("'", "&#39;") in page
    assert "Traceback (most recent call last)" in page
    assert "Key components" not in page


def test_a_key_that_is_not_kept_says_why(
    client: FlaskClient, store: sqlite3.Connection, recorded_client
) -> None:
    record_traced_run(store, payloads=False)
    number = store.execute("select max(id) from cache_lookups").fetchone()[0]
    report = build_lookup(store, RUN, number)
    assert report is not None
    assert report.diff is None
    assert report.key_remark is not None
    assert "Not recorded by this torch" in report.key_remark
    assert list_runs_before(store, RUN) == []


def test_keys_are_other_peoples_text(client: FlaskClient, store: sqlite3.Connection) -> None:
    record_traced_run(store, MARKUP)
    numbers = [number for (number,) in store.execute("select id from cache_lookups order by id")]
    for number in numbers:
        page = client.get(f"/runs/{RUN}/caches/{number}").text
        assert "<img src=x" not in page
        assert "<script>alert" not in page
        assert "script&gt;49" not in page
    assert "input 0: shape [0] → [1]" in page


def test_api_compares_misses_only_where_it_is_asked_to(
    explored_client: FlaskClient, explored_reader
) -> None:
    run_id, number, _compile_id = _misses(explored_reader)[1]
    data: dict[str, Any] = explored_client.get(f"/api/v1/runs/{run_id}/caches?limit=1000").json[
        "data"
    ]
    assert {lookup["differs"] for lookup in data["lookups"]} == {None}
    compared = explored_client.get(f"/api/v1/runs/{run_id}/caches?limit=1000&differs=yes").json[
        "data"
    ]["lookups"]
    assert any("shape [4, 32] → [8, 32]" in (lookup["differs"] or "") for lookup in compared)
    item = explored_client.get(f"/api/v1/runs/{run_id}/caches/{number}").json["data"]
    assert [component["name"] for component in item["changed"]] == ["example_inputs[2]"]


def test_a_miss_is_compared_with_earlier_runs_of_its_name(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    record_traced_run(store)
    first, second = (
        number for (number,) in store.execute("select id from cache_lookups order by id")
    )
    names = [row["name"] for row in store.execute("pragma table_info(runs)")]
    same = ", ".join(name for name in names if name not in ("id", "started_us"))
    store.execute("begin immediate")
    store.execute(
        f"insert into runs (id, started_us, {same}) select 'EARLIER', started_us - 1, {same} "
        "from runs"
    )
    store.execute("update cache_lookups set run_id = 'EARLIER' where id = ?", (first,))
    own = "id = (select compile_key from cache_lookups where run_id = 'EARLIER')"
    store.execute(f"update compiles set run_id = 'EARLIER' where {own}")
    store.execute("commit")
    assert list_runs_before(store, RUN) == ["EARLIER"]
    assert "First lookup of this function" in client.get(f"/runs/{RUN}/caches/{second}").text
    page = client.get(f"/runs/{RUN}/caches/{second}?runs=before").text
    assert "input 0: shape [0] → [1]" in page
    assert f'href="/runs/EARLIER/caches/{first}"' in page
