from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compileboard.app.clickhouse import client as clients
from compileboard.app.clickhouse.client import ClientPool, EngineUnavailable, connect
from compileboard.app.clickhouse.passes import Publisher
from compileboard.app.core.address import ClickHouseAddress
from compileboard.app.core.db import get_publication_state
from compileboard.collectors.store.dashboard import annotate
from tests.unit.app.clickhouse.publication.boards import assert_same
from tests.unit.app.clickhouse.publication.http_server import ChdbServer, serve_chdb

pytestmark = pytest.mark.clickhouse
NOW_US = 1_795_420_000_000_000


@pytest.fixture
def server(chdb_folder: Path) -> Iterator[ChdbServer]:
    with serve_chdb(chdb_folder) as server:
        yield server


@pytest.fixture
def address(server: ChdbServer, client: Any) -> ClickHouseAddress:
    return ClickHouseAddress(
        "127.0.0.1", server.server_port, server.user, client.database, "/srv/board"
    )


def test_runs_are_published_over_http_as_in_process(
    server: ChdbServer, address: ClickHouseAddress, board: sqlite3.Connection, client: Any
) -> None:
    words = "tab\t 'quote' \\ ⚑\n"
    annotate(board, next(row["id"] for row in board.execute("select id from runs")), note=words)
    with closing(ClientPool(address, server.password)) as pool:
        assert Publisher(pool).run_pass(board, NOW_US).whole_count == 3
        assert_same(client, board)
        with pool.borrow() as over_http:
            answer = over_http.query("select %(words)s, %(none)s", {"words": words, "none": None})
    assert answer.result_rows == [(words, None)]
    assert any("insert" in statement.lower() for statement in server.statements)


def test_clickhouse_may_refuse_its_user_for_a_while(
    server: ChdbServer, address: ClickHouseAddress, board: sqlite3.Connection
) -> None:
    server.password = "changed"
    with closing(ClientPool(address, "p")) as pool:
        publisher = Publisher(pool)
        with pytest.raises(EngineUnavailable, match="refuses user 'board'"):
            publisher.run_pass(board, NOW_US)
        state = get_publication_state(board)
        assert state is not None
        assert (state.waiting_count, "refuses user" in str(state.error)) == (3, True)
        server.password = "p"
        assert publisher.run_pass(board, NOW_US).whole_count == 3


def test_errors_of_a_connection_say_what_to_do(
    server: ChdbServer, address: ClickHouseAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        EngineUnavailable, match=r"refuses user 'board' .*516.* COMPILEBOARD_CLICKHOUSE_PASSWORD"
    ):
        connect(address, "wrong")
    with pytest.raises(EngineUnavailable, match=r"does not take what it is asked|lacks a table"):
        connect(replace(address, database="nowhere"), server.password)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
    with pytest.raises(
        EngineUnavailable, match=rf"127.0.0.1:{port}/.* cannot be reached .*Check that it runs"
    ):
        connect(replace(address, port=port), server.password)
    monkeypatch.setattr(clients, "ANSWER_TIMEOUT_S", 1)
    server.delay_s = 1.5
    with pytest.raises(EngineUnavailable, match=r"cannot be reached .*[Tt]ime"):
        connect(address, server.password)
