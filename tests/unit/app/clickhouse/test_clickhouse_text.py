"""How a statement and its values are written for ClickHouse; no ClickHouse is needed."""

from __future__ import annotations

from typing import Any

import pytest
from clickhouse_connect.driver.binding import format_bind_value

from compileboard.app.clickhouse.engine import FIELD_BYTES, prepare


@pytest.mark.parametrize(
    ("sql", "values", "text", "bound"),
    [
        ("id = :id", {"id": 2**62}, "id = {id:Int64}", {"id": 2**62}),
        ("id = :id and :id > 0", {"id": True}, "id = {id:Int64} and {id:Int64} > 0", {"id": 1}),
        ("x > :x", {"x": 0.5}, "x > {x:Float64}", {"x": 0.5}),
        (":name is null or name = :name", {"name": None}, "null is null or name = null", {}),
        ("name = :name", {"name": "a", "other": 1}, "name = {name:String}", {"name": "a"}),
        (
            "a $is :a and n $div 2 = 1",
            {"a": None},
            "a is not distinct from null and n div 2 = 1",
            {},
        ),
        ("id $in(:ids)", {"ids": (1, 2)}, "id in {ids:Array(Int64)}", {"ids": [1, 2]}),
        ("id $in(:ids)", {"ids": []}, "id in []", {}),
        (":ids is null or id $in(:ids)", {"ids": None}, "null is null or id in []", {}),
        (":ids is null or id $in(:ids)", {"ids": []}, "[] is null or id in []", {}),
        (
            "from $each(:ids) as w $join t on t.id = w.value",
            {"ids": ["a"]},
            "from (select arrayJoin({ids:Array(String)}) as value) as w join t on t.id = w.value",
            {"ids": ["a"]},
        ),
        (
            "from newest as n $join $rows(run_breaks, newest) as b on $of(b, n)",
            {},
            "from newest as n join (select * from run_breaks_rows where pub in (select pub "
            "from newest)) as b "
            "on b.pub = n.pub",
            {},
        ),
        (
            "from $rows(results, :ids) as x",
            {"ids": ["a"]},
            "from (select * from results_rows where run_id in {ids:Array(String)} and pub in "
            "(select pub from runs "
            "where id in {ids:Array(String)})) as x",
            {"ids": ["a"]},
        ),
        (
            "from $rows(results, :ids) as x",
            {"ids": []},
            "from (select * from results_rows where run_id in [] and pub in (select pub from runs "
            "where id in [])) as x",
            {},
        ),
        ("from $each(:ids) as w", {"ids": ()}, "from (select null as value where 0) as w", {}),
        ("json_get(f, '$.a[0].b :id ''$is')", {"id": 1}, "json_get(f, '$.a[0].b :id ''$is')", {}),
        (r"name = '\' or name = :id", {"id": 1}, r"name = '\\' or name = {id:Int64}", {"id": 1}),
        (
            "id = 1 -- :id $is 'it''s\n and id = :id",
            {"id": 1},
            "id = 1 \n and id = {id:Int64}",
            {"id": 1},
        ),
        ("a::b", {}, "a::b", {}),
    ],
)
def test_a_statement_is_written_with_the_types_of_its_values(
    sql: str, values: dict[str, Any], text: str, bound: dict[str, Any]
) -> None:
    assert prepare(sql, values) == (text, bound)
    assert [type(value) for value in prepare(sql, values)[1].values()] == [
        type(value) for value in bound.values()
    ]


def test_a_long_list_is_bound_in_parts() -> None:
    ids = list(range(12_000))
    text, bound = prepare("id $in(:ids)", {"ids": ids})
    assert (
        text
        == "id in arrayConcat({ids_0:Array(Int64)}, {ids_1:Array(Int64)}, {ids_2:Array(Int64)})"
    )
    assert [id_ for part in bound.values() for id_ in part] == ids
    names = [f"'{number}\\\n" * 50 for number in range(2000)]
    bound = prepare("from $each(:names) as w", {"names": names})[1]
    assert [name for part in bound.values() for name in part] == names
    assert all(len(format_bind_value(part).encode()) <= FIELD_BYTES for part in bound.values())


@pytest.mark.parametrize(
    ("sql", "values", "error"),
    [
        (":id", {}, KeyError),
        ("$nothing", {}, KeyError),
        (":id", {"id": b"1"}, TypeError),
        (":ids", {"ids": [1, "a"]}, TypeError),
        (":ids", {"ids": [None]}, TypeError),
        (":ids", {"ids": [[1]]}, TypeError),
    ],
)
def test_what_cannot_be_written_is_an_error(
    sql: str, values: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        prepare(sql, values)
