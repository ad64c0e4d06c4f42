"""The engine over ClickHouse: what it refuses and limits, its errors, and many threads at once."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from subprocess import run
from unittest.mock import patch

import pytest
from clickhouse_connect.driver.exceptions import Error

from compileboard.app.clickhouse import engine as clickhouse
from compileboard.app.clickhouse.client import ClientPool, EngineUnavailable, connect, explain
from compileboard.app.clickhouse.engine import ClickHouseEngine
from compileboard.app.core.address import ClickHouseAddress
from tests.tools.observed import ROOT
from tests.unit.app.clickhouse.published import open_clients

pytestmark = pytest.mark.clickhouse


@pytest.fixture(scope="module")
def clients(chdb_folder: Path) -> ClientPool:
    return open_clients(chdb_folder)


@pytest.fixture
def engine(clients: ClientPool) -> ClickHouseEngine:
    return ClickHouseEngine(clients)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (
            "select id from nothing",
            "lacks a table or a column.* Run `compileboard migrate --db ADDRESS`",
        ),
        ("select nothing from numbers(1)", "lacks a table or a column"),
        ("select from from", "does not take what it is asked: .*Syntax error"),
        ("select groupArray(number) from numbers(100000000)", "this needs too much memory"),
        ("select throwIf(number = 900000) from numbers(1000000)", "does not take what it is asked"),
    ],
)
def test_an_error_says_what_to_do(engine: ClickHouseEngine, sql: str, words: str) -> None:
    with patch.dict(clickhouse.LIMITS, {"max_memory_usage": 100 << 20}):
        for ask in (engine.rows, lambda sql: list(engine.stream(sql))):
            with pytest.raises(EngineUnavailable, match=words) as told:
                ask(sql)
            assert str(told.value).startswith(f"{engine.name}")
    assert engine.rows("select 1")[0][0] == 1


def test_what_takes_too_long_is_ended(engine: ClickHouseEngine) -> None:
    sql = "select sum(cityHash64(number)) from numbers(1000000000000)"
    words = "this took too long. Choose a shorter time or fewer runs"
    with (
        patch.dict(clickhouse.LIMITS, {"max_execution_time": 0.2}),
        pytest.raises(EngineUnavailable, match=words),
    ):
        engine.rows(sql)


@pytest.mark.parametrize(
    "sql", ["create table t (id Int64) order by id", "insert into x values (1)", "drop table x"]
)
def test_nothing_is_written(engine: ClickHouseEngine, clients: ClientPool, sql: str) -> None:
    connect(clients.address).command("create table if not exists x (id Int64) order by id")
    with pytest.raises(EngineUnavailable):
        engine.rows(sql)
    assert engine.rows("select count(*) from x")[0][0] == 0
    assert (
        engine.rows("select count(*) from system.tables where database = currentDatabase()")[0][0]
        == 1
    )


@pytest.mark.nightly
def test_threads_get_their_own_answers(engine: ClickHouseEngine) -> None:
    sql = "select :number as mine, sum(number) as total from numbers(:count)"

    def ask(number: int) -> None:
        streamed = engine.stream("select number from numbers(:count)", {"count": 70_000})
        assert next(streamed) == (0,)
        values = {"number": number, "count": number}
        assert dict(engine.rows(sql, values)[0]) == {
            "mine": number,
            "total": number * (number - 1) // 2,
        }
        assert sum(1 for _row in streamed) == 69_999

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(1, 120)))


def test_a_stream_that_is_left_frees_its_client(
    engine: ClickHouseEngine, clients: ClientPool
) -> None:
    def read_one() -> Iterator[tuple[object, ...]]:
        for row in engine.stream("select number from numbers(10000000)"):
            yield row
            return

    idle_count = len(clients._idle)
    assert [list(read_one()) for _ in range(20)] == [[(0,)]] * 20
    assert len(clients._idle) == max(idle_count, 1)


def test_rows_come_before_the_answer_has_an_end(engine: ClickHouseEngine) -> None:
    rows = islice(engine.stream("select number from system.numbers"), 200_000)
    assert [number for (number,) in rows] == list(range(200_000))


def test_what_another_process_has_open_is_told(chdb_folder: Path, clients: ClientPool) -> None:
    code = "import sys; from compileboard.app.clickhouse.client import *\n"
    code += "connect(ClickHouseAddress(None, None, 'default', 'default', sys.argv[1]))"
    with clients.borrow():
        other = run(
            [sys.executable, "-c", code, chdb_folder],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert "is open in another process. Stop that process, or ask its dashboard." in other.stderr
    assert "DB::Exception" not in other.stderr


def test_a_server_that_is_not_there_is_told() -> None:
    nowhere = ClientPool(ClickHouseAddress("127.0.0.1", 1, "ann", "board", ""))
    with pytest.raises(
        EngineUnavailable,
        match=r"^clickhouse://127.0.0.1:1/board cannot be reached .* Check that it runs",
    ):
        ClickHouseEngine(nowhere).rows("select 1")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "AUTHENTICATION_FAILED",
            "refuses user 'ann' .* Check the user of the address and its password in",
        ),
        (
            "READONLY",
            (
                "lets user 'ann' change no settings. Take `readonly` out of its profile, or set it "
                "to 2"
            ),
        ),
        ("NOT_ENOUGH_SPACE", "its disk is full. Free some space"),
        ("UNKNOWN_DATABASE", "Run `compileboard migrate --db ADDRESS`"),
        (None, "cannot be reached .*Connection reset.*Check that it runs"),
        ("TOO_MANY_PARTS", "does not take what it is asked: Connection reset"),
    ],
)
def test_an_error_of_a_server_says_what_to_do(name: str | None, words: str) -> None:
    error = Error("Connection\n reset", name=name, code=name and 1)
    assert re.search(words, str(explain(error, ClickHouseAddress("box", 8123, "ann", "board", ""))))


def test_files_that_are_gone_are_told_as_such() -> None:
    error = Error(
        "filesystem error: in file_size: No such file or directory", name="STD_EXCEPTION", code=1001
    )
    inside = explain(
        error, ClickHouseAddress(None, None, "default", "default", "/srv/board/clickhouse")
    )
    assert str(inside).startswith(
        "chdb /srv/board/clickhouse lacks files that it had. Stop the server, remove that"
    )


@pytest.mark.parametrize(
    ("name", "extra"), [("clickhouse_connect", "clickhouse"), ("chdb", "chdb")]
)
def test_a_package_that_is_not_installed_is_named(chdb_folder: Path, name: str, extra: str) -> None:
    hidden = {name: None, "clickhouse_connect.driver._chdbclient": None}
    with (
        patch.dict(sys.modules, hidden),
        pytest.raises(EngineUnavailable, match=rf"pip install 'compileboard\[{extra}\]'"),
    ):
        connect(ClickHouseAddress(None, None, "default", "default", str(chdb_folder)))


def test_programs_started_later_get_the_signals_that_they_would(clients: ClientPool) -> None:
    with clients.borrow() as client:
        client.query("select 1")
    assert (
        run(["bash", "-c", "yes | head -1; echo ${PIPESTATUS[0]}"], capture_output=True).stdout
        == b"y\n141\n"
    )
