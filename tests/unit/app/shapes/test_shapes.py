"""Symbolic shapes as torch 2.13 recorded them of tests/data/trace/record_shapes.py, in words and
with what to do.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.shapes.model import (
    ShapeSymbol,
    build_shapes,
    describe_guard,
    describe_range,
    describe_reason,
)
from compileboard.app.shapes.run_queries import (
    ShapeCompile,
    SymbolRecord,
    list_lines,
    list_shape_compiles,
)
from compileboard.collectors.fixes.fix import SourceLines
from compileboard.collectors.store.codec import pack
from compileboard.collectors.store.run_causes import save_source_lines
from tests.unit.app.recorded import MARKUP, RUN, record_run
from tests.unit.app.seed import insert


@pytest.fixture
def run_id(explored_reader: sqlite3.Connection) -> str:
    return str(
        explored_reader.execute("select id from runs where name = 'torch2.13-shapes'").fetchone()[0]
    )


@pytest.fixture
def views(explored_client: FlaskClient, run_id: str) -> dict[str, list[dict[str, Any]]]:
    rows_by_function: dict[str, list[dict[str, Any]]] = {}
    for row in explored_client.get(f"/api/v1/runs/{run_id}/shapes").json["data"]:
        rows_by_function.setdefault(row["function"], []).append(row)
    return rows_by_function


def symbol(row: dict[str, Any], name: str) -> dict[str, Any]:
    return next(symbol for symbol in row["symbols"] if symbol["symbol"] == name)


def test_a_branch_on_a_size_is_a_condition_with_the_bounds_that_avoid_it(
    views: dict[str, list[dict[str, Any]]],
) -> None:
    shape_symbol = symbol(views["branch"][0], "s77")
    assert (shape_symbol["source"], shape_symbol["value"]) == ("x.size()[0]", "8")
    assert [(guard["words"], guard["source_line"]) for guard in shape_symbol["guards"]] == [
        ("s77 must be at most 10", "if x.shape[0] > 10:")
    ]
    assert "torch._dynamo.mark_dynamic(x, 0, min=2, max=10)" in shape_symbol["advice"][0]


@pytest.mark.parametrize(
    ("function", "value"), [("specialize", "8"), ("as_range", "5"), ("add_fixed", "6")]
)
def test_what_fixed_a_size_is_named_with_its_line(
    views: dict[str, list[dict[str, Any]]], function: str, value: str
) -> None:
    fixed = symbol(views[function][0], "s77")
    assert [record["value"] for record in fixed["specialized"]] == [value]
    assert fixed["specialized"][0]["words"] == "conditions left one value"
    assert fixed["specialized"][0]["line"] is not None
    assert f"compiled in as {value}" in fixed["advice"][0]
    assert "mark_dynamic on it raises" in fixed["advice"][0]


def test_duck_shapes_and_0_and_1_are_named(views: dict[str, list[dict[str, Any]]]) -> None:
    shape_symbol = symbol(views["add"][0], "s77")
    assert shape_symbol["same"] == ["l_x_.size()[0]", "l_y_.size()[0]"]
    assert "use_duck_shape = False" in shape_symbol["advice"][0]
    assert symbol(views["pairs"][0], "s77")["same"] == []
    row = next(row for row in views["plain"] if row["fixed"])
    assert row["fixed"] == [{"name": "l_x_", "dim": 0, "size": 1}]


def test_an_unbacked_symbol_is_told_apart_and_a_check_is_no_fault(
    views: dict[str, list[dict[str, Any]]],
) -> None:
    checked = symbol(views["nonzero_checked"][0], "u0")
    assert checked["is_unbacked"]
    assert checked["guards"][0]["source_line"] == "torch._check(i.size(0) >= 2)"
    assert "torch._check(condition)" in checked["advice"][0]
    assert symbol(views["item"][0], "s57")["advice"] == []


def test_a_view_asks_for_a_multiple(views: dict[str, list[dict[str, Any]]]) -> None:
    words = [guard["words"] for guard in symbol(views["view_of"][0], "s77")["guards"]]
    assert "s77 must be a multiple of 4" in words
    assert any(
        "pad to such a multiple" in sentence
        for sentence in symbol(views["view_of"][0], "s77")["advice"]
    )


def test_the_page_names_the_lines_that_cause_most(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection, run_id: str
) -> None:
    page = explored_client.get(f"/runs/{run_id}/shapes?limit=100").text
    assert list_lines(explored_reader, run_id)[0].source_line == "return x.view(4, -1)"
    for text in (
        "Source lines by shape guards",
        "compiled in as 8",
        "duck shape",
        "0 and 1 are compiled in",
        "unbacked",
    ):
        assert text in page


def test_pages_of_compiles_lose_none(explored_reader: sqlite3.Connection, run_id: str) -> None:
    whole = [row.key for row in list_shape_compiles(explored_reader, run_id, limit=100).rows]
    seen, cursor = [], None
    while True:
        page = list_shape_compiles(explored_reader, run_id, cursor, 3)
        seen += [row.key for row in page.rows]
        cursor = page.next
        if cursor is None:
            break
    assert seen == whole
    assert len(whole) > 10


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("Eq(s0, 8)", "s0 must be 8"),
        ("Ne(s0, 1)", "s0 must not be 1"),
        ("Eq(s0, s1)", "s0 must be equal to s1"),
        ("Eq(Mod(s0, 4), 0)", "s0 must be a multiple of 4"),
        ("Ne(Mod(s0*s1, 4), 0)", "s0*s1 must not be a multiple of 4"),
        ("s0 < 10", "s0 must be less than 10"),
        ("8192*s27 <= 2147483647", "8192*s27 must fit a 32-bit index"),
        ("s0 <= s1", "s0 <= s1 must hold"),
        ("", " must hold"),
    ],
)
def test_conditions_in_words(expression: str, words: str) -> None:
    assert describe_guard(expression) == words


def test_ranges_and_reasons_in_words() -> None:
    assert describe_range("[2, int_oo]") == "2 and up"
    assert describe_range("[-int_oo, int_oo]") == "any value"
    assert describe_range("[2, 64]") == "2 to 64"
    assert describe_range(None) is None
    assert describe_reason("something new") == "something new"


def test_torchs_own_conditions_ask_for_nothing() -> None:
    record = SymbolRecord(1, "guarded", None, "s0 <= 99", None, None, None, "<string>", 6, None, ())
    made = SymbolRecord(
        2, "created", "s0", None, "8", "[2, int_oo]", "L['x'].size()[0]", "m.py", 3, "f(x)", ()
    )
    view = build_shapes(
        ShapeCompile(1, "0/0", None, "f", "m.py", "compiled", 402, (made, record), {})
    )
    assert view.symbols[0].advice == ()
    assert [guard.words for guard in view.symbols[0].guards] == ["s0 must be at most 99"]
    assert view.cut_count == 400


@pytest.mark.parametrize(("kept", "shown"), [(True, "h(x,\n  y.shape)"), (False, "… y.shape)")])
def test_a_call_over_two_lines_is_shown_whole(
    client: FlaskClient, store: sqlite3.Connection, kept: bool, shown: str
) -> None:
    record_run(store)
    key = store.execute("select min(id) from compiles").fetchone()[0]
    place = {"compile_key": key, "file": "m.py", "line": 3, "source_line": "y.shape)"}
    common = {"run_id": RUN, "process_id": "p", "detail": pack("{}"), "time_us": 1}
    for sequence, kind in enumerate(("created", "guarded")):
        insert(store, "symbols", sequence=sequence, kind=kind, symbol="s0", **place, **common)
    lines = ("def f(x, y):", "    h(x,", "      y.shape)")
    save_source_lines(store, RUN, [SourceLines("m.py", 1, lines)] if kept else [])
    store.commit()
    assert [line.source_line for line in list_lines(store, RUN)] == [shown]
    row = client.get(f"/api/v1/runs/{RUN}/shapes").json["data"][0]
    assert symbol(row, "s0")["source_line"] == shown


def test_a_run_without_symbols_says_why_and_hostile_text_stays_text(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    record_run(store)
    assert "No symbolic shapes" in client.get(f"/runs/{RUN}/shapes").text
    key = store.execute("select min(id) from compiles").fetchone()[0]
    for n, kind in enumerate(("created", "guarded", "specialized")):
        store.execute(
            "insert into symbols (run_id, process_id, sequence, compile_key, kind, symbol, "
            "expression, source, file,"
            " source_line, value, detail, time_us) values (?, 'p', ?, ?, ?, 's0', ?, ?, ?, ?, "
            "?, ?, 1)",
            (
                RUN,
                n,
                key,
                kind,
                f"s0 {MARKUP}",
                MARKUP,
                MARKUP,
                MARKUP,
                MARKUP,
                pack(json.dumps({"user_stack": [3]})),
            ),
        )
    store.execute(
        "update runs set heartbeat_us = heartbeat_us + 1"
    )  # as the recorder does that writes so
    store.commit()
    page = client.get(f"/runs/{RUN}/shapes").text
    assert MARKUP not in page
    assert "&lt;b onclick=x&gt;" in page


def test_of_two_records_that_made_a_symbol_the_first_wins_wherever_others_stand() -> None:
    def record(id_: int, kind: str, source: str) -> SymbolRecord:
        return SymbolRecord(id_, kind, "s0", None, str(id_), None, source, "m.py", id_, None, ())

    fixed = record(1, "specialized", "of the fixed")
    made = (record(2, "created", "first"), record(3, "created", "second"))

    def build(*records: SymbolRecord) -> ShapeSymbol:
        whole = ShapeCompile(1, "0/0", None, "f", "m.py", "compiled", len(records), records, {})
        (symbol,) = build_shapes(whole).symbols
        return symbol

    for records in ((*made, fixed), (fixed, *made), (made[0], fixed, made[1])):
        assert (build(*records).value, build(*records).source) == ("2", "first")
    for records in ((fixed,), (fixed, record(4, "specialized", "of the fixed again"))):
        assert (build(*records).value, build(*records).source) == (None, "of the fixed")


def test_a_condition_that_was_added_twice_stands_where_it_was_added_first() -> None:
    def record(id_: int, *stack: dict[str, Any]) -> SymbolRecord:
        return SymbolRecord(
            id_, "guarded", None, "s0 <= 9", None, None, None, "m.py", 6, "f", stack
        )

    records = (record(1, {"file": "m.py", "line": 6}), record(2))
    whole = ShapeCompile(1, "0/0", None, "f", "m.py", "compiled", 2, records, {})
    (guard,) = build_shapes(whole).symbols[0].guards
    assert (guard.count, guard.record_id, guard.by_user) == (2, 1, True)
