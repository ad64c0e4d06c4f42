from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from compileboard.app.clickhouse.engine import ClickHouseEngine
from compileboard.app.core.engine import Engine, SqliteEngine, get_row
from compileboard.collectors.store.connection import open_reader
from tests.unit.app.clickhouse.published import open_clients

WORDS = [(1, "one", 7), (2, None, 8), (3, "d'accord", None)]


@pytest.fixture(scope="module")
def clickhouse(chdb_folder: Path) -> ClickHouseEngine:
    clients = open_clients(chdb_folder)
    with clients.borrow() as client:
        client.command(
            "create table words (id Int64, word Nullable(String), size Nullable(Int64)) order by id"
        )
        client.insert("words", WORDS)
    return ClickHouseEngine(clients)


@pytest.fixture(params=["sqlite", pytest.param("clickhouse", marks=pytest.mark.clickhouse)])
def engine(request: pytest.FixtureRequest, store: sqlite3.Connection) -> Engine:
    if request.param == "clickhouse":
        engine: Engine = request.getfixturevalue("clickhouse")
        return engine
    store.executescript("create table words (id integer primary key, word text, size integer)")
    store.executemany("insert into words values (?, ?, ?)", WORDS)
    return SqliteEngine(store)


@pytest.mark.parametrize(
    ("condition", "values", "ids"),
    [
        ("word $in(:words)", {"words": ["one", "d'accord", "x') or 1 --"]}, [1, 3]),
        ("word $in(:words)", {"words": None}, []),
        ("(:words is null or word $in(:words))", {"words": None}, [1, 2, 3]),
        ("(:words is null or word $in(:words))", {"words": []}, []),
        ("id $in(:ids)", {"ids": (3, 2)}, [2, 3]),
        ("id $in(:ids)", {"ids": []}, []),
        ("word $is :word", {"word": None}, [2]),
        ("word $is :word", {"word": "one"}, [1]),
        ("size $div :by = 3", {"by": 2}, [1]),
        (
            "id in (select w.id from $each(:ids) as given $join words as w on w.id = given.value)",
            {"ids": [1, 9]},
            [1],
        ),
        (
            "id in (select w.id from $each(:ids) as given $join words as w on w.id = given.value)",
            {"ids": []},
            [],
        ),
        ("word in (select given.value from $each(:words) as given)", {"words": ()}, []),
        ("instr(':word $is -- ', :word) > 0 -- :word and $is", {"word": "$is"}, [1, 2, 3]),
        (r"'\' || '' = :word", {"word": "\\"}, [1, 2, 3]),
        ("size = :size", {"size": True}, []),
        ("size - 6 = :size", {"size": True}, [1]),
    ],
)
def test_a_macro_is_written_and_its_values_are_bound(
    engine: Engine, condition: str, values: dict[str, object], ids: list[int]
) -> None:
    rows = engine.rows(f"select id from words where {condition} order by id", values)
    assert [row["id"] for row in rows] == ids


@pytest.mark.parametrize(
    "values", [list(range(30_000)), [f"'{number}\\" * 9 for number in range(9000)]]
)
def test_a_list_may_be_long(engine: Engine, values: list[int | str]) -> None:
    sql = (
        "select count(*) as count, max(value) as most from $each(:values) as given where value "
        "$in(:values)"
    )
    assert dict(engine.rows(sql, {"values": values})[0]) == {
        "count": len(values),
        "most": max(values),
    }


def test_rows_have_names_and_a_stream_has_tuples(engine: Engine) -> None:
    sql = "select id, word from words order by id"
    assert dict(engine.rows(sql)[0]) == {"id": 1, "word": "one"}
    assert list(engine.stream(sql)) == [(1, "one"), (2, None), (3, "d'accord")]
    first = get_row(engine, sql)
    assert first is not None and (first[1], first["word"], *first) == ("one", "one", 1, "one")
    assert get_row(engine, "select id from words where id = :id", {"id": 9}) is None


VALUES = (
    *(0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 0.1, 1e308, -0.0, None),
    *(
        "",
        "ä😀",
        "tab\t, line\n",
        "it's",
        "back\\slash \\N",
        "nul\0",
        "{x:Int64}",
        "%s %(a)s",
        "null",
        "x" * 200_000,
    ),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_a_value_comes_back_as_it_was(engine: Engine, value: str | float | None) -> None:
    values = {"value": value, "other": 1, "more": "x"}
    ((answer, other),) = engine.rows("select :value as value, :other as other", values)
    assert (repr(answer), type(answer), other) == (repr(value), type(value), 1)
    if value not in (None, "nul\0"):  # SQLite's JSON ends a text there
        rows = engine.rows("select value from $each(:values) as given", {"values": [value, value]})
        assert [row[0] for row in rows] == [value, value]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("count(*)", 3),
        ("sum(size)", 15),
        ("max(word)", "one"),
        ("sum(size > 7)", 1),
        ("-7 $div 2", -3),
        ("7 / 2e0", 3.5),
        ("'a' || null", None),
        ("nullif('', '')", None),
        ("2 > 1", 1),
        ("coalesce(null, 2) is not null", 1),
        ("upper('äa') || lower('ÄA')", "äAÄa"),
        ("case when 1 > 2 then 'x' end", None),
        ("count(distinct word)", 2),
        ("instr('日本', '本') > 0", 1),
    ],
)
def test_an_expression_has_the_value_and_type_of_sqlite(
    engine: Engine, expression: str, value: object
) -> None:
    ((answer,),) = engine.rows(f"select {expression} as answer from words")[:1]
    assert (answer, type(answer)) == (value, type(value))


def test_a_macro_that_no_engine_has_is_refused(engine: Engine) -> None:
    with pytest.raises(KeyError, match="nothing"):
        engine.rows("select $nothing from words")


def test_engines_of_one_file_have_one_name(database: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(database.read_bytes())
    with ExitStack() as stack:
        first, same, another = (
            stack.enter_context(closing(SqliteEngine(open_reader(path))))
            for path in (database, database, other)
        )
        assert first.name == same.name != another.name
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        first.rows("select 1")
