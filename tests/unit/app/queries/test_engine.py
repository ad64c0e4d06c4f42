from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from compileboard.app.queries.engine import SqliteEngine, get_row
from compileboard.collectors.store.connection import open_reader


@pytest.fixture
def engine(store: sqlite3.Connection) -> SqliteEngine:
    store.executescript("create table words (id integer primary key, word text, size integer)")
    store.executemany("insert into words (word, size) values (?, ?)", [("one", 7), (None, 8), ("d'accord", None)])
    return SqliteEngine(store)


@pytest.mark.parametrize(
    ("condition", "values", "ids"),
    [
        ("word $in(:words)", {"words": ["one", "d'accord", "x') or 1 --"]}, [1, 3]),
        ("id $in(:ids)", {"ids": (3, 2)}, [2, 3]),
        ("id $in(:ids)", {"ids": []}, []),
        ("word $is :word", {"word": None}, [2]),
        ("word $is :word", {"word": "one"}, [1]),
        ("size $div :by = 3", {"by": 2}, [1]),
        ("id in (select w.id from $each(:ids) as given $join words as w on w.id = given.value)", {"ids": [1, 9]}, [1]),
    ],
)
def test_a_macro_is_written_and_its_values_are_bound(
    engine: SqliteEngine, condition: str, values: dict[str, object], ids: list[int]
) -> None:
    rows = engine.rows(f"select id from words where {condition} order by id", values)
    assert [row["id"] for row in rows] == ids


def test_rows_have_names_and_a_stream_has_tuples(engine: SqliteEngine) -> None:
    sql = "select id, word from words order by id"
    assert dict(engine.rows(sql)[0]) == {"id": 1, "word": "one"}
    assert list(engine.stream(sql)) == [(1, "one"), (2, None), (3, "d'accord")]
    first = get_row(engine, sql)
    assert first is not None and (first[1], first["word"], *first) == ("one", "one", 1, "one")
    assert get_row(engine, "select id from words where id = :id", {"id": 9}) is None


def test_a_macro_that_no_engine_has_is_refused(engine: SqliteEngine) -> None:
    with pytest.raises(KeyError, match="nothing"):
        engine.rows("select $nothing from words")


def test_engines_of_one_file_have_one_name(database: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(database.read_bytes())
    with ExitStack() as stack:
        first, same, another = (
            stack.enter_context(closing(SqliteEngine(open_reader(path)))) for path in (database, database, other)
        )
        assert first.name == same.name != another.name
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        first.rows("select 1")
