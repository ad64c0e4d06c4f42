"""Real trace logs are sent to the real server, whole, packed, damaged, hostile and too large."""

from __future__ import annotations

import fcntl
import gzip
import io
import lzma
import os
import signal
import socket
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from compileboard.app import create_app
from compileboard.app.core.settings import Settings
from compileboard.app.imports import import_process as child
from compileboard.collectors.store.migrations import migrate
from tests.tools.make_db import DATA
from tests.tools.observed import wait_for
from tests.tools.serving import Server, serving
from tests.tools.uploading import call, send, send_and_wait, wait


def read_log(name: str) -> bytes:
    return lzma.decompress((DATA / "trace" / f"{name}.log.xz").read_bytes())


BREAKS = read_log("torch2.13-breaks")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uploads") / "team.db"


@pytest.fixture(scope="module")
def server(database: Path) -> Iterator[Server]:
    with serving(database, "--workers", "2", COMPILEBOARD_UPLOAD_MIB="2") as server:
        yield server


@pytest.fixture
def base(server: Server, database: Path) -> Iterator[str]:
    yield server.address
    assert server.process.poll() is None
    for _ in range(100):  # an import's folder goes just after it has said that it ended
        left = [path for path in database.with_name("team.db-imports").glob("*/") if path.is_dir()]
        if not left:
            return
        time.sleep(0.02)
    raise AssertionError(f"left behind: {left}")


def test_a_log_becomes_a_run_that_has_what_was_asked_for(base: str) -> None:
    done = send_and_wait(
        base, [("breaks.log", BREAKS)], name="my run", suite="nightly", tags="lr=3, host=a"
    )
    assert (done["state"], done["message"], done["read_bytes"]) == ("done", "", len(BREAKS))
    run = call(f"{base}/api/v1/runs/{done['run_id']}")[1]["data"]
    assert (run["name"], run["suite"], run["tags"], run["source"]) == (
        "my run",
        "nightly",
        {"lr": "3", "host": "a"},
        "import",
    )
    assert [(log["name"], log["payloads"]) for log in run["logs"]] == [("breaks.log", "kept")]
    again = send_and_wait(base, [("copy.log", BREAKS)])
    assert (again["run_id"], again["record_count"]) == (done["run_id"], 0)
    assert "Nothing new" in again["message"]
    for _ in range(100):
        changes = call(f"{base}/api/v1/audit?subject={done['run_id']}")[1]["data"]
        if len(changes) == 2:
            break
        time.sleep(0.05)
    assert [(change["action"], change["detail"], change["address"]) for change in changes] == [
        ("import.done", "copy.log", "127.0.0.1"),
        ("import.done", "breaks.log", "127.0.0.1"),
    ]
    accepted = call(f"{base}/api/v1/audit?subject={done['id']}")[1]["data"]
    assert [(entry["action"], entry["detail"]) for entry in accepted] == [
        ("import.upload", "breaks.log")
    ]


def test_an_archive_of_two_ranks_becomes_one_run(base: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for rank in (0, 1):
            body = read_log(f"torch2.11-cuda-ddp-rank{rank}")
            member = tarfile.TarInfo(f"trace/dedicated_log_torch_trace_rank_{rank}_x.log")
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    done = send_and_wait(base, [("ddp.tar.gz", packed.getvalue())], payloads="no")
    assert (done["state"], done["log_count"], done["rejects"]) == ("done", 2, {})
    logs = call(f"{base}/api/v1/runs/{done['run_id']}")[1]["data"]["logs"]
    assert [log["name"] for log in logs] == [
        f"ddp.tar.gz: trace/dedicated_log_torch_trace_rank_{rank}_x.log" for rank in (0, 1)
    ]
    assert {log["payloads"] for log in logs} == {"left_out"}


def test_a_raw_body_is_a_log_too(base: str) -> None:
    body = read_log("torch2.13-guards")
    address = f"{base}/api/v1/imports?filename=guards.log.gz&redact_source=yes"
    status, answer = call(address, gzip.compress(body), "application/octet-stream")
    assert status == 202
    done = wait(base, answer["data"]["id"])
    assert (done["name"], done["state"], done["read_bytes"]) == ("guards.log.gz", "done", len(body))
    assert call(f"{base}/api/v1/runs/{done['run_id']}")[1]["data"]["logs"][0]["redacted"] is True


def test_what_a_client_calls_its_files_is_text_and_never_a_path(base: str, database: Path) -> None:
    names = [
        "../../escape.log",
        "/etc/cron.d/x",
        "<img src=x onerror=alert(1)>.log",
        "C:\\x\\..\\y.log",
    ]
    done = send_and_wait(base, [(name, gzip.compress(BREAKS)) for name in names])
    assert done["name"] == "escape.log and 3 more"
    assert not list(database.parent.parent.rglob("escape*"))
    folder = send_and_wait(base, [("up/../a/x.log", BREAKS), ("up/b.log", BREAKS[:2000])])
    assert folder["name"] == "up"


def test_a_damaged_archive_gives_what_it_has_and_says_so(base: str) -> None:
    body = read_log("torch2.11-cuda-zoo_graph_breaks")
    done = send_and_wait(base, [("cut.log.gz", gzip.compress(body)[:-9000])])
    assert (done["state"], done["rejects"].get("damaged_file")) == ("done", 1)
    run = call(f"{base}/api/v1/runs/{done['run_id']}")[1]["data"]
    assert {"kind": "damaged_file", "count": 1, "first_line": None} in run["rejects"]
    page = _read_page(f"{base}/runs/{done['run_id']}")
    assert "could not be read" in page
    assert "cannot be read to its end" in _read_page(f"{base}/runs/{done['run_id']}?tab=processes")


def test_a_bomb_is_ended_and_the_message_names_the_limit(base: str) -> None:
    body = read_log("torch2.11-cuda-zoo_recompiles")
    bomb = lzma.compress(body + b"x" * (60 << 20), preset=1)
    assert len(bomb) < 2 << 20
    ended = send_and_wait(base, [("bomb.log.xz", bomb)])
    assert ended["state"] == "failed"
    assert "the limit is 16,777,216 bytes" in ended["message"]
    assert "compileboard-collect import PATH" in ended["message"]


def test_a_body_that_is_too_large_is_refused_announced_or_not(base: str) -> None:
    status, answer = send(base, [("big.log", b"x" * (3 << 20))])
    assert status == 413
    assert "takes 2 MiB" in answer["error"] and "COMPILEBOARD_UPLOAD_MIB" in answer["error"]
    host, _, port = base.removeprefix("http://").partition(":")
    import http.client

    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.request(
        "POST",
        "/api/v1/imports",
        body=iter([b"x" * 65536] * 40),
        headers={"Content-Type": "application/octet-stream"},
        encode_chunked=True,
    )
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"colour": "red"}, "no such field"),
        ({"payloads": "perhaps"}, "neither yes nor no"),
        ({"tags": "x"}, "key=value"),
    ],
)
def test_a_field_that_cannot_be_used_is_400(
    base: str, fields: dict[str, str], sentence: str
) -> None:
    status, answer = send(base, [("a.log", BREAKS)], **fields)
    assert (status, sentence in answer["error"]) == (400, True)


def test_an_upload_without_a_file_is_400_and_another_sites_is_403(base: str) -> None:
    assert send(base, [("", b"")])[0] == 400
    assert call(f"{base}/api/v1/imports", b"x", "text/plain")[0] == 415
    assert (
        call(
            f"{base}/api/v1/imports",
            b"x",
            "application/octet-stream",
            **{"Sec-Fetch-Site": "cross-site"},
        )[0]
        == 403
    )


def test_a_full_queue_says_when_to_try_again_and_any_worker_knows_all(
    base: str, database: Path
) -> None:
    send_and_wait(base, [("a.log", BREAKS)])
    with (database.with_name("team.db-imports") / "running").open("rb") as running:
        fcntl.flock(running, fcntl.LOCK_EX)  # as if a long import ran
        waiting = [
            send(base, [(f"{letter}.log", BREAKS)])[1]["data"]["id"] for letter in "abcdefgh"
        ]
        status, answer = send(base, [("i.log", BREAKS)])
        assert (status, answer["retry_after"]) == (429, "10")
        for _ in range(3):  # a connection each: both workers are asked
            assert {wait(base, import_id, "waiting")["state"] for import_id in waiting} == {
                "waiting"
            }
    assert {wait(base, import_id)["state"] for import_id in waiting} == {"done"}


@pytest.mark.nightly
def test_a_short_import_passes_long_ones_and_those_are_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "SLICE_S", 1)
    migrate(tmp_path / "team.db")
    client = create_app(Settings(db=str(tmp_path / "team.db"))).test_client()

    def ask(path: str) -> Any:
        return client.get(f"/api/v1/{path}").get_json()["data"]

    def send_log(body: bytes) -> Any:
        answer = client.post(
            "/api/v1/imports?payloads=no", data=body, content_type="application/octet-stream"
        )
        return answer.get_json()["data"]["id"]

    longs = [
        read_log(name) * times
        for name, times in (("torch2.13-breaks", 72), ("torch2.13-guards", 18))
    ]
    lanes = tmp_path / "team.db-imports"
    lanes.mkdir()
    with (lanes / "running-long").open("w") as second:
        fcntl.flock(second, fcntl.LOCK_EX)  # as if a long import ran in the second lane
        sent = [send_log(gzip.compress(body, 1)) for body in longs]
        wait_for(lambda: all(has_made_way(ask(f"imports/{id_}")) for id_ in sent), 120)
        monkeypatch.setattr(child, "SLICE_S", 600)  # the short one is never asked to make way
        short = send_log(read_log("torch2.11-cuda-hf_Bert_train"))
        wait_for(lambda: ask(f"imports/{short}")["state"] == "done")
        assert all(has_made_way(ask(f"imports/{id_}")) for id_ in sent)
    wait_for(lambda: all(ask(f"imports/{id_}")["state"] == "done" for id_ in sent), 120)
    logs = [ask(f"runs/{ask(f'imports/{id_}')['run_id']}")["logs"][0] for id_ in sent]
    assert [log["size_bytes"] for log in logs] == [len(body) for body in longs]


def has_made_way(upload: dict[str, Any]) -> bool:
    return upload["state"] == "waiting" and upload["run_id"] is not None


def test_uploads_that_stall_deny_no_other(base: str) -> None:
    host, _, port = base.removeprefix("http://").partition(":")
    head = (
        "POST /api/v1/imports HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/octet-stream\r\n"
    )
    with ExitStack() as stalled:
        for _ in range(12):  # more than threads, and more than may wait for their import
            client = stalled.enter_context(socket.create_connection((host, int(port)), timeout=5))
            client.sendall(f"{head}Content-Length: 1000\r\n\r\nhalf".encode())
        time.sleep(0.3)
        assert send_and_wait(base, [("fifth.log", BREAKS)])["state"] == "done"
        assert call(f"{base}/healthz")[0] == 200


def test_a_killed_child_leaves_a_sentence_and_a_run_that_is_not_running(
    base: str, database: Path
) -> None:
    body = read_log("torch2.11-cuda-hf_Bert_train")
    with sqlite3.connect(database, isolation_level=None) as connection:
        connection.execute("begin immediate")  # the child waits for it
        import_id = send(base, [("bert.log", body)])[1]["data"]["id"]
        wait(base, import_id, "running")
        os.kill(_find_child(database), signal.SIGKILL)
        ended = wait(base, import_id)
        connection.execute("rollback")
    assert ended["state"] == "failed"
    assert "It was killed" in ended["message"]
    assert send_and_wait(base, [("bert.log", body)])["state"] == "done"


def _find_child(database: Path) -> int:
    for _ in range(200):
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if (
                    f"--db={database}".encode() in (folder / "cmdline").read_bytes()
                    and b"import" in (folder / "cmdline").read_bytes()
                ):
                    return int(folder.name)
            except OSError:
                continue
        time.sleep(0.02)
    raise AssertionError("no child")


def _read_page(address: str) -> str:
    import urllib.request

    with urllib.request.urlopen(address, timeout=30) as answer:
        return str(answer.read().decode())
