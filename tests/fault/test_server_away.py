"""The server hangs, refuses, fails or dies: the program goes on, its record arrives later."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from compileboard.collectors.contract.events import CompileStarted
from tests.tools.observed import PROGRAMS, Workplace, wait_for
from tests.unit.push.push_server import PushServer, push_server

SPOOLING = PROGRAMS / "spooling.py"


@pytest.fixture
def server() -> Iterator[PushServer]:
    with push_server() as server:
        yield server


def push(workplace: Workplace, address: str, count: int = 20, pause_s: float = 0.01) -> Any:
    return workplace.collect(
        "run", "--server", address, "--", sys.executable, SPOOLING, count, pause_s
    )


def run_id_of(done: Any) -> str:
    (run_id,) = set(re.findall(r"\b01[0-9A-Z]{24}\b", done.stderr))
    return str(run_id)


def is_empty(workplace: Workplace) -> bool:
    return not workplace.outbox


def count_compiles(server: PushServer, run_id: str) -> int:
    return len(
        {event.sequence for event in server.read(run_id)[0] if isinstance(event, CompileStarted)}
    )


def test_a_run_is_pushed_and_its_last_line_says_where_to_look(
    workplace: Workplace, server: PushServer
) -> None:
    done = push(workplace, server.address, pause_s=0.1)
    run_id = run_id_of(done)
    assert done.returncode == 0
    assert (
        f"run {run_id} is pushed to {server.address}/runs/{run_id}" in done.stderr.splitlines()[0]
    ), done.stderr
    assert f"pushed to {server.address}/runs/{run_id}" in done.stderr.splitlines()[-1], done.stderr
    assert count_compiles(server, run_id) == 20
    assert (workplace.spools, is_empty(workplace)) == ([], True)


@pytest.mark.parametrize("how", ["refuses", "hangs", "answers 500"])
def test_a_server_that_is_away_costs_the_program_nothing_and_gets_all_later(
    workplace: Workplace, server: PushServer, how: str
) -> None:
    if how == "answers 500":
        server.fault = lambda method, path: 500
    with closing(socket.socket()) as away:
        away.bind(("127.0.0.1", 0))
        if how == "hangs":
            away.listen()
        port = server.server_port if how == "answers 500" else away.getsockname()[1]
        done = push(workplace, f"http://127.0.0.1:{port}", pause_s=0.15)
        assert (done.returncode, "done" in done.stdout) == (0, True)
        assert "Traceback" not in done.stderr
        assert " is pushed to " not in done.stderr
        first, last = done.stderr.splitlines()
        reasons = {
            "refuses": "does not answer: Connection refused",
            "hangs": "gave no answer so far",  # it ended before the time limit of an answer
        }
        assert f"run {run_id_of(done)} waits for the server: " in first
        assert reasons.get(how, "the server answers 500") in first
        assert f"of run {run_id_of(done)} wait in {workplace.home / 'outbox'}" in last
        assert not is_empty(workplace)
    if how == "answers 500":
        server.fault = lambda method, path: None
        wait_for(lambda: is_empty(workplace))
        assert count_compiles(server, run_id_of(done)) == 20
    else:
        with push_server(port) as other:
            wait_for(lambda: is_empty(workplace), 90)
            assert count_compiles(other, run_id_of(done)) == 20


def test_the_last_line_counts_what_a_full_outbox_lost(
    workplace: Workplace, server: PushServer
) -> None:
    command = (
        "run",
        "--outbox-size",
        "1KiB",
        "--server",
        server.address,
        "--",
        sys.executable,
        SPOOLING,
        20,
    )
    assert " events lost, as the outbox was full; " in workplace.collect(*command).stderr


def test_a_server_that_dies_while_the_program_runs_gets_every_event_once(
    workplace: Workplace,
) -> None:
    with push_server() as first:
        port = first.server_port
        command = (
            "run",
            "--server",
            first.address,
            "--",
            sys.executable,
            str(SPOOLING),
            "100",
            "0.02",
        )
        started = workplace.start_command(*command)
        wait_for(lambda: first.streams and len(next(iter(first.streams.values()))) > 500)
        first.fault = lambda method, path: "cut"
        stored = {key: bytes(body) for key, body in first.streams.items()}
    with push_server(port) as second:
        second.streams.update({key: bytearray(body) for key, body in stored.items()})
        assert started.wait(60) == 0
        wait_for(lambda: is_empty(workplace), 60)
        (run_id,) = {run_id for run_id, _ in second.streams}
        assert count_compiles(second, run_id) == 100


def test_a_sender_that_is_killed_is_followed_by_another_and_nothing_comes_twice(
    workplace: Workplace, server: PushServer
) -> None:
    command = ("run", "--server", server.address, "--", sys.executable, SPOOLING, "100", "0.02")
    started = workplace.start_command(*command)
    status = workplace.home / "outbox" / "sender.json"
    # The server has a stream before the sender has written that it does.
    wait_for(lambda: server.streams and status.exists())
    os.kill(json.loads(status.read_text())["pid"], signal.SIGKILL)
    assert started.wait(60) == 0
    wait_for(lambda: is_empty(workplace))
    ((run_id, _stream),) = server.streams
    events = server.read(run_id)[0]
    assert count_compiles(server, run_id) == 100
    assert len([event for event in events if isinstance(event, CompileStarted)]) == 100


def test_the_token_is_in_no_file_and_no_line(workplace: Workplace, server: PushServer) -> None:
    server.token = "cb_0123456789abcdef"
    workplace.environment = {"COMPILEBOARD_TOKEN": server.token}
    done = workplace.collect(
        "run",
        "--capture-env",
        "COMPILEBOARD_TOKEN",
        "--server",
        server.address,
        "--",
        sys.executable,
        SPOOLING,
        3,
        0,
    )
    assert f"pushed to {server.address}" in done.stderr.splitlines()[-1], done.stderr
    assert server.token.encode() not in workplace.all_bytes()
    assert server.token.encode() not in b"".join(server.lines(run_id_of(done)))
    assert server.token not in done.stderr + done.stdout
