"""Requests of boxes: the protocol of `collectors/wire`, its limits, and who may send."""

from __future__ import annotations

import gzip
import random
import sqlite3
import threading
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from compileboard.app.push import api as streams
from compileboard.app.push import receive as rates
from compileboard.app.push import receive as writing
from compileboard.app.push.receive import RateLimit
from compileboard.collectors.contract.events import ArtifactSeen, Event, ProcessStarted, RunStarted
from compileboard.collectors.push.delivery import make_loss_line
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.pruning import PruneRule, prune_runs
from compileboard.collectors.store.tokens import create_token
from compileboard.collectors.store.trash import delete_run
from compileboard.collectors.wire.lines import MAX_PLAIN_BYTES, checksum_of, digest_of
from compileboard.collectors.wire.marks import StreamEnd, dump_mark
from compileboard.collectors.wire.texts import SentText, dump_texts
from tests.tools.push.box import STREAM_PATH, StreamBytes, headers_of

PATH = STREAM_PATH.format("R", "s1")
START: list[Event] = [RunStarted("r", 0, 5, "R", "run"), ProcessStarted("p", 0, 6, "R", 42)]
STREAM = StreamBytes.of(START)
WITH_TEXT = StreamBytes.of(
    [*START, ArtifactSeen("p", 9, 7, name="graph", state="kept", text="graph " * 2000)]
)
(DIGEST,) = WITH_TEXT.texts


def patch(
    client: FlaskClient, plain: bytes, offset: int = 0, path: str = PATH, **headers: str
) -> TestResponse:
    return client.patch(path, data=plain, headers={**headers_of(offset, plain), **headers})


def offset_of(response: TestResponse) -> int:
    return int(response.headers["Upload-Offset"])


def json_of(response: TestResponse) -> Any:
    return response.get_json()


def count(store: sqlite3.Connection, table: str) -> int:
    (number,) = store.execute(f"select count(*) from {table}").fetchone()
    return int(number)


def test_lines_are_stored_once_however_often_they_come(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    lines = STREAM.lines
    assert offset_of(client.head(PATH)) == 0
    half = lines.index(b"\n", 200) + 1
    for begin, end in ((0, half), (0, half), (0, len(lines)), (half, len(lines))):
        response = patch(client, lines[begin:end], begin)
        assert response.status_code == 204, response.text
        assert offset_of(response) >= end
    head = client.head(PATH)
    assert (offset_of(head), head.headers["Upload-Checksum"]) == (
        len(lines),
        f"crc32 {checksum_of(lines):08x}",
    )
    assert (count(store, "events"), count(store, "runs")) == (2, 1)


@pytest.mark.parametrize("sent", ["01JD0000000000000000000ABC", "01jd0000000000000000000abc"])
def test_a_ulid_in_small_letters_is_the_same_run(
    client: FlaskClient, store: sqlite3.Connection, sent: str
) -> None:
    run_id = sent.upper()
    started: list[Event] = [
        RunStarted("r", 0, 5, sent, "run"),
        ProcessStarted("p", 0, 6, sent, 42),
    ]
    lines = StreamBytes.of(started).lines
    for stream in ("s1", "s2"):
        assert patch(client, lines, path=STREAM_PATH.format(sent, stream)).status_code == 204
    assert [row["id"] for row in store.execute("select id from runs")] == [run_id]
    for written in (run_id, run_id.lower()):
        answer = client.get(f"/api/v1/runs/{written}")
        assert (answer.status_code, json_of(answer)["data"]["id"]) == (200, run_id)
        assert client.get(f"/runs/{written}").status_code == 200


def test_a_gap_tells_where_to_go_on(client: FlaskClient) -> None:
    half = STREAM.lines.index(b"\n") + 1
    response = patch(client, STREAM.lines[half:], half)
    assert (response.status_code, offset_of(response)) == (409, 0)


def test_gzip_and_texts_by_content(client: FlaskClient, store: sqlite3.Connection) -> None:
    packed = gzip.compress(WITH_TEXT.lines)
    headers = headers_of(0, WITH_TEXT.lines, packed=True)
    response = client.patch(PATH, data=packed, headers=headers)
    assert (response.status_code, json_of(response)["missing"]) == (409, [DIGEST])
    assert json_of(client.post("/api/v1/texts/missing", json={"digests": [DIGEST]}))["data"] == {
        "missing": [DIGEST]
    }
    put = [
        client.put(f"/api/v1/texts/{DIGEST}", data=WITH_TEXT.texts[DIGEST]).status_code
        for _ in range(2)
    ]
    assert put == [201, 200]
    assert json_of(client.post("/api/v1/texts/missing", json={"digests": [DIGEST]}))["data"] == {
        "missing": []
    }
    assert client.patch(PATH, data=packed, headers=headers).status_code == 204
    assert count(store, "sent_texts") == 0
    assert json_of(client.get("/api/v1/runs/R/artifacts"))["data"][0]["size_bytes"] is None


def test_what_stands_in_for_a_refused_line_counts_it_among_the_rejects(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    lines = STREAM.lines.splitlines(keepends=True)
    (number,) = [number for number, line in enumerate(lines) if b'"process_started"' in line]
    stand_in = make_loss_line(lines[number], "s1", 1, "the server answers 413")
    assert stand_in is not None
    body = b"".join([*lines[:number], stand_in, *lines[number + 1 :]])
    assert offset_of(patch(client, body)) == len(STREAM.lines)
    rows = store.execute("select file_name, kind, reject_count, example from run_rejects")
    assert [tuple(row) for row in rows] == [("s1", "not_taken", 1, "the server answers 413")]


def test_a_dropped_text_holds_nothing_up(client: FlaskClient, store: sqlite3.Connection) -> None:
    question = {"digests": [], "run": "R", "dropped": [DIGEST]}
    assert client.post("/api/v1/texts/missing", json=question).status_code == 200
    assert patch(client, WITH_TEXT.lines).status_code == 204
    assert store.execute("select dropped_text_count from streams").fetchone()[0] == 1


def test_a_stream_that_differs_begins_again(client: FlaskClient, store: sqlite3.Connection) -> None:
    lines = STREAM.lines
    assert patch(client, lines[: lines.rindex(b"\n", 0, -1) + 1]).status_code == 204
    wrong = dump_mark(StreamEnd(7, 7))
    response = patch(client, wrong, offset_of(client.head(PATH)))
    assert (response.status_code, json_of(response)["restart"]) == (409, True)
    assert offset_of(client.head(PATH)) == 0
    assert patch(client, lines, 0, PATH + "2").status_code == 204
    assert count(store, "events") == 2


def test_a_deleted_run_is_gone(client: FlaskClient, store: sqlite3.Connection) -> None:
    half = STREAM.lines.rindex(b"\n", 0, -1) + 1
    patch(client, STREAM.lines[:half])
    delete_run(store, "R")
    assert client.head(PATH).status_code == 410
    assert "was deleted" in json_of(patch(client, STREAM.lines[half:], half))["error"]


def test_a_pruned_run_says_so_and_keeps_its_figures(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    patch(client, STREAM.lines)
    assert [run.id for run in prune_runs(store, PruneRule(2**60), 2**60)] == ["R"]
    late = patch(client, WITH_TEXT.lines[len(STREAM.lines) :], len(STREAM.lines))
    assert (late.status_code, json_of(late)["error"]) == (
        410,
        "Run R was pruned on the server; nothing more of it is stored.",
    )
    assert (count(store, "runs"), count(store, "events")) == (1, 0)


def test_a_run_belongs_to_who_began_it(client: FlaskClient, store: sqlite3.Connection) -> None:
    patch(client, STREAM.lines)  # from this machine
    headers = {
        "Authorization": f"Bearer {create_token(store, 'box-1', ('ingest',), created_by='me')}"
    }
    for path in (PATH, STREAM_PATH.format("R", "another")):
        assert (
            client.head(path, headers=headers).status_code,
            patch(client, b"", path=path, **headers).status_code,
        ) == (
            403,
            403,
        )
    dropped = {"digests": [], "run": "R", "dropped": [DIGEST]}
    assert client.post("/api/v1/texts/missing", json=dropped, headers=headers).status_code == 403


BOMB = gzip.compress(b"\n" * (MAX_PLAIN_BYTES + 1), mtime=0)


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (400, b"{}", {}),
        (400, b"{}\n", {"Upload-Offset": "-1"}),
        (400, b"{}\n", {"Upload-Checksum": "md5 00"}),
        (400, b"{}\n", {"Content-Encoding": "br"}),
        (413, BOMB, {"Content-Encoding": "gzip"}),
        (413, b"\n" * 20_001, {}),
        (426, b'{"v":9}\n', {}),
        (426, b'{"v":1,"kind":"later"}\n', {}),
        (426, b'{"v":1,"mark":"later"}\n', {}),
        (460, b"{}\n", {"Upload-Checksum": "crc32 00000001"}),
        (460, gzip.compress(b"{}\n", mtime=0)[:-4], {"Content-Encoding": "gzip"}),
        (460, b"no gzip", {"Content-Encoding": "gzip"}),
    ],
)
def test_a_body_that_cannot_be_stored_is_refused_in_words(
    client: FlaskClient,
    store: sqlite3.Connection,
    status: int,
    body: bytes,
    headers: dict[str, str],
) -> None:
    response = patch(client, body, 0, PATH, **headers)
    assert response.status_code == status, response.text
    assert json_of(response)["error"].endswith(".")
    assert count(store, "streams") == 0


@pytest.mark.parametrize(
    ("status", "environ"),
    [
        (411, {"CONTENT_LENGTH": ""}),
        (411, {"CONTENT_LENGTH": "-1"}),
        (411, {"HTTP_TRANSFER_ENCODING": "chunked"}),
        (413, {"CONTENT_LENGTH": str(9 << 20)}),
        (413, {"CONTENT_LENGTH": "9" * 40}),
        (408, {"CONTENT_LENGTH": "9"}),
    ],
)
def test_a_length_that_cannot_be_is_refused(
    client: FlaskClient, status: int, environ: dict[str, str]
) -> None:
    headers = headers_of(0, STREAM.lines)
    response = client.patch(PATH, data=b"{}\n", headers=headers, environ_overrides=environ)
    assert response.status_code == status


@pytest.mark.parametrize(
    ("digest", "body", "headers", "status"),
    [
        ("0" * 32, b"text", {}, 460),
        ("x" * 32, b"text", {}, 400),
        (
            digest_of(b"a"),
            gzip.compress(b"a" * (2 << 20), mtime=0),
            {"Content-Encoding": "gzip"},
            413,
        ),
    ],
)
def test_a_text_that_is_not_its_digests_is_refused(
    client: FlaskClient, digest: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert client.put(f"/api/v1/texts/{digest}", data=body, headers=headers).status_code == status


@pytest.mark.parametrize(
    "question", [[], {"digests": "x"}, {"digests": ["x"]}, {"digests": [DIGEST] * 10_001}]
)
def test_a_question_that_is_none_is_refused(client: FlaskClient, question: Any) -> None:
    assert client.post("/api/v1/texts/missing", json=question).status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/runs/R/streams/..",
        "/api/v1/runs/%20/streams/s",
        f"/api/v1/runs/{'r' * 65}/streams/s",
    ],
)
def test_ids_are_short_words(client: FlaskClient, path: str) -> None:
    assert patch(client, b"", 0, path).status_code in (400, 404)


def test_a_token_may_send_so_much_in_a_minute(
    client: FlaskClient, shared_app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100
    monkeypatch.setattr(streams, "rates", RateLimit(lambda: now_s * 1_000_000_000))
    settings = shared_app.config["COMPILEBOARD"]
    shared_app.config["COMPILEBOARD"] = replace(settings, push_rate_mib=1)
    text = zlib.compress(b"x").ljust(3 << 20)
    assert client.put(f"/api/v1/texts/{digest_of(text)}", data=text).status_code == 201
    response = patch(client, STREAM.lines)
    assert (response.status_code, response.headers["Retry-After"]) == (429, "120")
    assert response.headers["Connection"] == "close"
    now_s += 121
    assert patch(client, STREAM.lines).status_code == 204


@pytest.mark.parametrize(("sent_bytes", "wait_s"), [(59_999, 0), (60_000, 1), (60_001, 1)])
def test_a_client_waits_from_the_byte_on_that_empties_its_bucket(
    sent_bytes: int, wait_s: int
) -> None:
    limit = RateLimit(lambda: 0)
    limit.charge("a", sent_bytes, 60_000)
    assert limit.get_wait_s("a", 60_000) == wait_s


def test_the_client_that_sent_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MAX_CLIENTS", 2)
    limit = RateLimit(lambda: 0)
    for client in "abac":
        limit.charge(client, 90_000, 60_000)
    assert [limit.get_wait_s(client, 60_000) for client in "ac"] == [120, 30]
    assert limit.get_wait_s("b", 60_000) == 0


def test_a_locked_database_is_told(
    client: FlaskClient, store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        writing, "open_writer", lambda path, **_: open_writer(path, busy_timeout_ms=1)
    )
    store.execute("begin immediate")
    response = patch(client, STREAM.lines)
    assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
    store.execute("rollback")
    assert patch(client, STREAM.lines).status_code == 204


def test_a_full_disk_is_told(
    client: FlaskClient, store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_small(path: str, **_: Any) -> sqlite3.Connection:
        connection = open_writer(path)
        (page_count,) = connection.execute("pragma page_count").fetchone()
        connection.execute(f"pragma max_page_count = {page_count}")
        return connection

    text = random.Random(0).randbytes(100_000)
    with monkeypatch.context() as full:
        full.setattr(writing, "open_writer", open_small)
        response = client.put(f"/api/v1/texts/{digest_of(text)}", data=text)
    assert (response.status_code, response.headers["Retry-After"]) == (507, "5")
    assert "full" in json_of(response)["error"]
    assert client.put(f"/api/v1/texts/{digest_of(text)}", data=text).status_code == 201


def test_more_than_may_wait_is_told_to_come_later(
    client: FlaskClient, shared_app: Flask, database: Path
) -> None:
    thread = writing.get_writer_thread(str(database), 1)
    release = threading.Event()
    waiting = [thread.submit(lambda _writer: release.wait(30)) for _ in range(2)]
    response = patch(client, STREAM.lines)
    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
    release.set()
    assert all(future.result() for future in waiting)
    assert patch(client, STREAM.lines).status_code == 204


def test_two_requests_of_a_stream_at_once_store_it_once(
    client: FlaskClient, shared_app: Flask, store: sqlite3.Connection
) -> None:
    statuses: list[int] = []
    at_once = threading.Barrier(4)

    def send() -> None:
        at_once.wait()
        statuses.append(patch(shared_app.test_client(), STREAM.lines).status_code)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [204] * 4
    assert (count(store, "events"), count(store, "streams")) == (2, 1)


def test_large_bodies_wait_for_room(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LARGE_BODY_WAIT_S", 0.01)
    monkeypatch.setattr(streams, "large_bodies", threading.BoundedSemaphore(1))
    text = b"x" * (streams.SMALL_BYTES + 1)
    with streams.large_bodies:
        response = client.put(f"/api/v1/texts/{digest_of(text)}", data=text)
        assert (response.status_code, response.headers["Connection"]) == (503, "close")
        assert patch(client, STREAM.lines).status_code == 204
    assert client.put(f"/api/v1/texts/{digest_of(text)}", data=text).status_code == 201


def test_several_texts_in_one_request_are_stored_whole_or_not_at_all(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    texts = [b"graph %d " % number * 900 for number in range(30)]
    sent = [
        SentText(digest_of(text), gzip.compress(text) if number % 2 else text, bool(number % 2))
        for number, text in enumerate(texts)
    ]
    damaged = [*sent[:5], replace(sent[5], digest="0" * 32)]
    bomb = SentText(digest_of(bytes(20 << 20)), gzip.compress(bytes(20 << 20)), True)
    for body, status in (
        (dump_texts(damaged), 460),
        (dump_texts(sent)[:-1], 400),
        (b"{}", 400),
        (dump_texts([bomb]), 413),
    ):
        assert client.post("/api/v1/texts", data=body).status_code == status
        assert count(store, "payloads") == 0
    for _again in range(2):
        assert client.post("/api/v1/texts", data=dump_texts(sent)).status_code == 204
        assert count(store, "payloads") == 30
    missing = client.post("/api/v1/texts/missing", json={"digests": [text.digest for text in sent]})
    assert json_of(missing)["data"]["missing"] == []
