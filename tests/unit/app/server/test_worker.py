"""The worker's time limits, with a real gunicorn and clients that stall."""

from __future__ import annotations

import errno
import resource
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from benchmarks.serve.stalled_clients import ask, stall
from benchmarks.serve.stalled_clients import serving as serving_small
from compileboard.app.server import worker
from compileboard.app.server.gunicorn_server import raise_file_limit
from compileboard.app.server.worker import ClientSocket, ClientTimeout, ClientTooSlow
from tests.tools.serving import Server, serving

# Who waits for a client that stalls waits for its time limit; a busy machine takes far less.
NO_WAIT_S = min(worker.HEADER_S, worker.SILENCE_S) / 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(
        tmp_path_factory.mktemp("stalled") / "team.db", "--threads", "4", "--follow", "no"
    ) as server:
        yield server


@pytest.mark.parametrize("kind", ["silent", "header", "body", "idle"])
def test_clients_that_stall_do_not_delay_others(server: Server, kind: str) -> None:
    port = int(server.address.rpartition(":")[2])
    with ExitStack() as clients:
        stall(port, kind, 60, clients)
        assert max(ask(port, NO_WAIT_S) for _ in range(5)) < NO_WAIT_S
    assert "Traceback" not in server.output


def test_more_silent_clients_than_there_is_room_for_lock_nobody_out(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with (
        serving_small("compileboard.app.server.worker.Worker", max_files=260) as port,
        ExitStack() as clients,
    ):
        stall(port, "silent", 300, clients)
        assert max(ask(port, NO_WAIT_S) for _ in range(3)) < NO_WAIT_S
        stall(port, "idle", 100, clients)
        assert max(ask(port, NO_WAIT_S) for _ in range(3)) < NO_WAIT_S
    assert "Traceback" not in capfd.readouterr().err


def test_a_worker_that_has_no_file_left_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Listener:
        def accept(self) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(worker, "NO_ROOM_S", 0)
    made = worker.Worker.__new__(worker.Worker)
    made.nr_conns, made.worker_connections, made.pending_conns, made.keepalived_conns = (
        0,
        9,
        deque(),
        deque(),
    )
    made.accept(Listener())  # type: ignore[arg-type]


def test_connections_fit_below_the_limit_on_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, 1024)]
    monkeypatch.setattr(resource, "getrlimit", lambda _what: limits[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _what, pair: limits.append(pair))
    assert raise_file_limit(8) < 1024 - 100
    limits[0] = (1024, 4096)
    assert raise_file_limit(8) == 1000
    assert 1000 < limits[-1][0] <= 4096


def test_a_body_by_small_pieces_is_taken(server: Server) -> None:
    port = int(server.address.rpartition(":")[2])
    head = (
        "POST /runs/none/annotate HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/x-www-form-urlencoded\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(f"{head}Content-Length: 12\r\n\r\n".encode())
        for letter in b"title=a+name":
            client.sendall(bytes([letter]))
            time.sleep(0.02)
        assert client.recv(100).startswith(b"HTTP/1.1 404")


def make_pair(permits: int = 1) -> tuple[ClientSocket, socket.socket, threading.Semaphore]:
    ours, theirs = socket.socketpair()
    semaphore = threading.Semaphore(permits)
    return ClientSocket(ours, semaphore), theirs, semaphore


def test_a_client_that_is_waited_for_holds_no_permit() -> None:
    ours, theirs, permits = make_pair()
    with ours, theirs:
        ours.begin_work()
        assert not permits.acquire(blocking=False)
        other = threading.Timer(
            0.1, lambda: (permits.acquire(), theirs.sendall(b"x"), permits.release())
        )
        other.start()
        assert ours.recv(10) == b"x"
        other.join()
        assert not permits.acquire(blocking=False)
        ours.end_work()
        assert permits.acquire(blocking=False)


def test_a_wait_that_is_bounded_by_a_timeout_holds_no_permit() -> None:
    ours, theirs, permits = make_pair()
    with ours, theirs:
        ours.begin_work()
        ours.settimeout(0.3)
        free: list[bool] = []
        other = threading.Timer(
            0.1, lambda: free.append(permits.acquire(timeout=0.1) and not permits.release())
        )
        other.start()
        with pytest.raises(TimeoutError):
            ours.recv(10)
        other.join()
        assert free == [True]


@pytest.mark.parametrize("direction", ["send", "take"])
def test_a_client_slower_than_the_least_rate_is_left(
    monkeypatch: pytest.MonkeyPatch, direction: str
) -> None:
    monkeypatch.setattr(worker, "GRACE_S", 0.2)
    monkeypatch.setattr(worker, "SILENCE_S", 0.2)
    ours, theirs, permits = make_pair()
    with ours, theirs:
        ours.begin_work()
        with pytest.raises(ClientTooSlow):
            if direction == "send":
                ours.recv(10)
            else:
                ours.sendall(b"x" * (8 << 20))
        ours.end_work()
        assert permits.acquire(blocking=False)


def test_patience_counts_waits_and_pays_for_bytes() -> None:
    patience = ClientTimeout()
    patience.waited_s = worker.GRACE_S
    assert patience.get_left_s() == 0
    patience.byte_count = 10_000  # 10 KB/s is well above 500
    assert patience.get_left_s() == worker.SILENCE_S
    header = ClientTimeout(worker.HEADER_S)
    header.waited_s, header.byte_count = worker.HEADER_S, 10_000
    assert header.get_left_s() == 0
