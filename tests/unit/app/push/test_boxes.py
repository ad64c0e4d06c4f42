"""The page of boxes: what each pushed, and since when nothing came."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import replace

import pytest
from flask.testing import FlaskClient

from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.push.test_push import PATH, STREAM, patch
from tests.unit.app.repros.captured import COMPILE_REPRO, RUN, capture_repros

pytestmark = on_both_engines

NOW_US = time.time_ns() // 1000


def test_boxes_without_a_push_name_the_command(client: FlaskClient) -> None:
    assert "compileboard-collect run --server" in client.get("/boxes").text


@pytest.mark.parametrize(
    ("updated_us", "ended_us", "words"),
    [(NOW_US + 3_600_000_000, None, ">receiving<"), (5, None, ">silent<"), (5, 5, ">delivered<")],
    ids=["receiving", "silent", "delivered"],
)
def test_a_stream_has_a_state(
    client: FlaskClient,
    store: sqlite3.Connection,
    updated_us: int,
    ended_us: int | None,
    words: str,
) -> None:
    patch(client, STREAM.lines)
    store.execute(
        "update streams set updated_us = ?, ended_us = ?, lost_count = 7", (updated_us, ended_us)
    )
    page = client.get("/boxes").text
    assert words in page
    assert '<td class="number" data-label="Lost events">7</td>' in page
    (row,) = client.get("/api/v1/streams").json["data"]
    assert (row["run_id"], row["stream_id"], row["lost_count"]) == ("R", "s1", 7)


def test_a_stream_that_a_later_one_of_its_run_repeats_is_replaced(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    patch(client, STREAM.lines)
    store.execute("update streams set started_us = 4, updated_us = 5, ended_us = null")
    columns = (
        "run_id, {}, token_id, stored_bytes, checksum, event_count, lost_count, "
        "dropped_text_count, version"
    )
    names = columns.format("stream_id")
    values = columns.format("'s2'")
    store.execute(
        f"insert into streams ({names}, started_us, updated_us) select {values}, 6, 6 from streams"
    )
    rows = client.get("/api/v1/streams").json["data"]
    assert [(row["stream_id"], row["is_replaced"]) for row in rows] == [("s2", False), ("s1", True)]
    assert ">replaced<" in client.get("/boxes").text


def test_streams_of_a_deleted_run_say_so(client: FlaskClient, store: sqlite3.Connection) -> None:
    patch(client, STREAM.lines)
    store.execute("delete from runs")
    page = client.get("/boxes").text
    assert ">deleted<" in page
    assert "/runs/R" not in page


def test_a_silent_boxs_run_shows_as_interrupted(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    patch(client, STREAM.lines[: STREAM.lines.rindex(b"\n", 0, -1) + 1])
    assert "Recording. This page refreshes itself." in client.get("/runs/R").text
    store.execute("update runs set heartbeat_us = 5")
    assert "interrupted?" in client.get("/runs/R").text
    assert client.head(PATH).status_code == 200


def test_commands_of_a_pushed_run_and_of_a_board_elsewhere_name_the_server(
    client: FlaskClient, store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture_repros(store)
    page = f"/repros/{COMPILE_REPRO}"
    assert f"repro minify {COMPILE_REPRO} --db " in client.get(page).text
    store.execute(
        "insert into streams (run_id, stream_id, stored_bytes, checksum, event_count, "
        "lost_count, dropped_text_count,"
        f" started_us, updated_us) values ('{RUN}', 's1', 0, 0, 0, 0, 0, 5, 5)"
    )
    assert f"repro minify {COMPILE_REPRO} --server http://localhost<" in client.get(page).text
    assert " --db " in client.get("/repros").text + client.get("/incidents").text
    config = client.application.config
    monkeypatch.setitem(
        config, "COMPILEBOARD", replace(config["COMPILEBOARD"], allow_host="board.example.com")
    )
    assert "bench --server http://localhost<" in client.get("/incidents").text
