"""`serve` with the real gunicorn: what it says, what it refuses, and how it stops."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from compileboard.app.core.settings import Settings
from compileboard.app.server.gunicorn_server import describe_exposure
from compileboard.collectors.store.connection import open_reader, open_writer
from tests.tools.killing import running
from tests.tools.observed import PROGRAMS, Workplace, wait_for
from tests.tools.serving import server_environ, serving
from tests.unit.app.recorded import record_run


def _get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return str(answer.read().decode())


def _refused(database: Path, *options: str, **settings: str) -> str:
    """Try to serve; return the one line that is said instead."""
    command = [sys.executable, "-m", "compileboard.app", "serve", "--db", str(database), *options]
    environ = server_environ(database.parent / "home", **settings)
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environ)
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("compileboard: ")
    assert "Traceback" not in done.stderr
    return lines[-1]


@pytest.mark.parametrize("before", ["missing", "empty"])
def test_serve_makes_a_missing_database_and_says_so(tmp_path: Path, before: str) -> None:
    database = tmp_path / "new.db"
    if before == "empty":
        database.touch()
    with serving(database) as server:
        assert "No runs yet" in _get(f"{server.address}/")
        assert (
            f"{database} {'did not exist' if before == 'missing' else 'was empty'}: made an empty"
            in server.output
        )
        assert f"serves {database} at {server.address}" in server.output
    with closing(open_reader(database)) as reader:
        assert reader.execute("select count(*) from runs").fetchone()[0] == 0


def test_with_a_format_each_line_has_it(tmp_path: Path) -> None:
    database = tmp_path / "new.db"
    with serving(database, "--log-format", "json") as server:
        wait_for(lambda: (tmp_path / "new.db-locks" / "follow").exists())
        (tmp_path / "new.db").write_bytes(b"no database")  # the process that follows says it
        wait_for(lambda: "is not a CompileBoard database" in server.output)
    lines = [json.loads(line) for line in server.lines]
    assert [line["level"] for line in lines][:2] == ["info", "info"]
    assert lines[0]["message"] == f"{database} did not exist: made an empty database"
    assert "error" in [line["level"] for line in lines]


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("follow",)])
def test_a_refusal_has_the_format_too(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "new.db").write_bytes(b"no database")
    words = [sys.executable, "-m", "compileboard.app", *command, "--db", str(tmp_path / "new.db")]
    environ = server_environ(tmp_path / "home", COMPILEBOARD_LOG_FORMAT="json")
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, env=environ)
    assert (done.returncode, json.loads(done.stderr)["level"]) == (2, "error")


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0)])
def test_serve_stops_cleanly(database: Path, stop: signal.Signals, code: int) -> None:
    with serving(database) as server:
        _get(f"{server.address}/healthz")
        with closing(
            socket.create_connection(("127.0.0.1", urlsplit(server.address).port))
        ):  # silent, as browsers are
            server.process.send_signal(stop)
            assert server.process.wait(timeout=10) == code
    assert "Traceback" not in server.output
    assert "Error" not in server.output
    with closing(socket.socket()) as probe:
        assert probe.connect_ex(("127.0.0.1", int(server.address.rpartition(":")[2]))) != 0


def test_a_port_in_use_is_one_sentence_and_makes_nothing(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        reported = _refused(tmp_path / "new.db", "--port", str(port))
    assert f"port {port} on 127.0.0.1 is in use by another program" in reported
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("--host", "no.such.host.invalid"),
            "--host no.such.host.invalid is not an address of this machine",
        ),
        (("--host", "192.0.2.1"), "cannot listen on 192.0.2.1"),
        (("--port", "many"), "--port is 'many'; expected a whole number"),
        (("--port", "65536"), "--port is 65536; expected 0 to 65535"),
        (("--workers", "0"), "--workers is 0; expected 1 to"),
    ],
)
def test_a_bad_option_is_one_sentence(
    tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    assert sentence in _refused(tmp_path / "new.db", *options)
    assert not (tmp_path / "new.db").exists()


def test_an_address_that_others_reach_needs_names_and_says_what_is_open(tmp_path: Path) -> None:
    assert "--allow-host NAME" in _refused(tmp_path / "new.db", "--host", "0.0.0.0", "--port", "0")
    assert not (tmp_path / "new.db").exists()
    with serving(
        tmp_path / "new.db", "--host", "0.0.0.0", "--allow-host", "box.lan", "--follow", "no"
    ) as server:
        assert "reading: open; writing: tokens (open as box.lan)" in server.output
    assert "writing: whoever uses this machine" in describe_exposure(Settings())
    named = Settings(reading="tokens", trusted_proxies=1, identity_header="X-Forwarded-User")
    assert describe_exposure(named).startswith(
        "reading: tokens, people whom the proxy names in X-Forwarded-User; writ"
    )


def test_a_bad_variable_is_named(tmp_path: Path) -> None:
    reported = _refused(tmp_path / "new.db", COMPILEBOARD_THREADS="x")
    assert "COMPILEBOARD_THREADS is 'x'" in reported


@pytest.mark.parametrize(
    ("version", "sentence"), [(99, "Upgrade CompileBoard"), (0, "Run `compileboard migrate --db")]
)
def test_another_version_is_refused_and_left_as_it_is(
    database: Path, version: int, sentence: str
) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(f"pragma user_version = {version}")
    assert sentence in _refused(database, "--port", "0")
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("pragma user_version").fetchone()[0] == version


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("my notes\n")
    assert "is not a CompileBoard database" in _refused(file, "--port", "0")
    assert file.read_text() == "my notes\n"


def test_serve_picks_up_what_no_recorder_finished(workplace: Workplace) -> None:
    workplace.lossy = True  # the line that the kill cut in two is one
    started = workplace.start(PROGRAMS / "spooling.py", 0, 0.01, start_new_session=True)
    assert started.stdout is not None
    program = int(started.stdout.readline())
    os.killpg(started.pid, signal.SIGKILL)
    wait_for(lambda: not running(program))
    started.communicate(timeout=20)
    with serving(workplace.database) as server:
        assert "of 1 run that no recorder had finished" in server.output
        assert workplace.only_run()["state"] == "interrupted"
        assert workplace.only_run()["id"] in _get(f"{server.address}/runs")
    assert not workplace.spools


@pytest.mark.nightly
def test_serve_indexes_what_is_not_indexed_in_the_background(database: Path) -> None:
    with closing(open_writer(database)) as store:
        record_run(store)
    with serving(database) as server:
        assert "indexing 1 run for search in the background" in server.output
        wait_for(lambda: "<mark>mismatch</mark>" in _get(f"{server.address}/search?q=mismatch"))
    with serving(database) as server:
        assert "indexing" not in server.output
