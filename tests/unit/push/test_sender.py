"""What a recorder writes into its outbox reaches the server once, whatever the wire does."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.contract.events import ArtifactSeen, CompileStarted, Event, RunStarted
from compileboard.collectors.logs.source import EventBatch
from compileboard.collectors.push import outbox, sender
from compileboard.collectors.push import outbox_report as report
from compileboard.collectors.push.outbox import list_waiting
from compileboard.collectors.push.outbox_report import describe_delivery
from compileboard.collectors.push.sender import Sender, read_status
from compileboard.collectors.push.target import Target
from compileboard.collectors.record import outbox_sink
from compileboard.collectors.record.outbox_sink import OutboxSink
from compileboard.collectors.store.connection import StoreMoved
from compileboard.collectors.wire.marks import StreamEnd
from tests.unit.push.push_server import PushServer, push_server

MAX_BYTES = 64 << 20


@pytest.fixture(autouse=True)
def no_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send from the test itself."""
    monkeypatch.setattr(sender, "LINGER_S", 0.05)
    monkeypatch.setattr(outbox_sink, "spawn_sender", lambda root: None)
    monkeypatch.setattr(report, "spawn_sender", lambda root: None)


@pytest.fixture
def server() -> Iterator[PushServer]:
    with push_server() as server:
        yield server


def open_sink(
    root: Path, server: PushServer, max_bytes: int = MAX_BYTES, run_id: str = "RUN"
) -> OutboxSink:
    return OutboxSink(root, run_id, Target(server.address), max_bytes)


def make_events(count: int, first: int = 0, text: str = "") -> list[Event]:
    events: list[Event] = []
    for number in range(first, first + count):
        events.append(CompileStarted("P", 2 * number, number, f"0/{number}", function="forward"))
        if text:
            events.append(
                ArtifactSeen(
                    "P", 2 * number + 1, number, name="graph", state="kept", text=f"{number}{text}"
                )
            )
    return events


def send(root: Path, server: PushServer, most_steps: int = 2000) -> None:
    """Send until nothing is left, without a pause between tries."""
    with closing(Sender(root, {})) as sending:
        for _ in range(most_steps):
            waiting = list(list_waiting(root))
            if not waiting:
                return
            sending.step(waiting)
            for line in sending._lines.values():
                line.pause.due_s = 0.0
            for shipment in sending._shipments.values():
                shipment.pause.due_s = 0.0
    raise AssertionError(
        f"{most_steps} steps were not enough: {read_status(root, Target(server.address))}"
    )


def step_once(root: Path) -> None:
    with closing(Sender(root, {})) as sending:
        sending.step(list(list_waiting(root)))


def run_sender(root: Path, **environment: str) -> bool:
    with closing(Sender(root, environment)) as sending:
        return sending.run()


def test_events_marks_and_long_texts_arrive_and_the_outbox_is_empty(
    tmp_path: Path, server: PushServer
) -> None:
    sink = open_sink(tmp_path, server)
    events = [RunStarted("B", 0, 1, run_id="RUN", name="a run"), *make_events(3, text="x" * 9000)]
    sink.ingest(EventBatch(events))
    sink.finish()
    sink.close()
    send(tmp_path, server)
    received, marks = server.read("RUN")
    assert received == events
    assert isinstance(marks[-1], StreamEnd)
    assert len(server.texts) == 3
    assert [path for path in tmp_path.rglob("*") if not path.name.startswith("sender.")] == []


def test_every_event_arrives_once_through_faults_of_every_kind(
    tmp_path: Path, server: PushServer
) -> None:
    chance = random.Random(7)
    faults = ("lost", "cut", 503, 500, 429, 460, 507)
    server.fault = lambda method, path: chance.choice(faults) if chance.random() < 0.3 else None
    sink, sent = open_sink(tmp_path, server), make_events(1500) + make_events(50, 1500, "y" * 5000)
    for first in range(0, len(sent), 500):
        sink.ingest(EventBatch(sent[first : first + 500]))
    sink.finish()
    sink.close()
    send(tmp_path, server)
    assert server.read("RUN")[0] == sent
    assert server.largest_bytes <= 256 << 10


def test_a_sender_that_was_killed_is_followed_by_one_that_asks_where_to_go_on(
    tmp_path: Path, server: PushServer
) -> None:
    sink, sent = open_sink(tmp_path, server), make_events(9000)
    sink.ingest(EventBatch(sent))
    sink.finish()
    sink.close()
    step_once(tmp_path)
    (waiting,) = list_waiting(tmp_path)
    assert 0 < waiting.read_sent().offset < waiting.measure()
    (waiting.folder / f"{waiting.name}.sent").unlink()  # it may not have been written
    send(tmp_path, server)
    assert server.read("RUN")[0] == sent


def test_a_text_that_the_server_has_is_not_sent(tmp_path: Path, server: PushServer) -> None:
    for run_id in ("FIRST", "SECOND"):
        sink = open_sink(tmp_path, server, run_id=run_id)
        sink.ingest(EventBatch(make_events(4, text="same" * 3000)))
        sink.finish()
        sink.close()
        send(tmp_path, server)
    assert (len(server.texts), server.requests["POST"], server.requests["PUT"]) == (4, 3, 0)
    assert server.read("SECOND")[0] == server.read("FIRST")[0]


def test_texts_go_together_where_they_are_small(tmp_path: Path, server: PushServer) -> None:
    texts = [
        random.Random(number).randbytes(30_000).hex() for number in range(40)
    ]  # that do not shrink below half
    texts.append(random.Random(99).randbytes(700_000).hex())
    sink = open_sink(tmp_path, server)
    sink.ingest(
        EventBatch(
            [
                ArtifactSeen("P", n, n, name="graph", state="kept", text=t)
                for n, t in enumerate(texts)
            ]
        )
    )
    sink.finish()
    sink.close()
    send(tmp_path, server)
    assert (server.requests["POST"], server.requests["PUT"]) == (4, 1)
    assert sorted(body.decode() for body in server.texts.values()) == sorted(texts)


def test_a_full_outbox_drops_texts_before_events_and_counts_what_it_drops(
    tmp_path: Path, server: PushServer
) -> None:
    sink = open_sink(tmp_path, server, max_bytes=100_000)
    noise = random.Random(1).randbytes(10_000).hex()
    for number in range(0, 60, 2):
        sink.ingest(EventBatch(make_events(2, number, text=noise)))
    assert sink.lost_count == 0
    sink.ingest(EventBatch(make_events(1000, 100)))
    sink.finish()
    sink.close()
    assert sink.lost_count == 1000
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 110_000
    send(tmp_path, server)
    received, marks = server.read("RUN")
    assert len(received) == 120
    assert isinstance(marks[-1], StreamEnd)
    assert marks[-1].lost_count == 1000
    assert len(server.dropped) + len(server.texts) == 60
    assert len(server.dropped) > 40


def test_what_the_server_lost_is_sent_anew_by_the_recorder_under_another_stream(
    tmp_path: Path, server: PushServer
) -> None:
    sink = open_sink(tmp_path, server)
    sink.ingest(EventBatch(make_events(5)))
    step_once(tmp_path)
    (stored,) = server.streams.values()
    stored[:20] = b"of an older backup !"
    step_once(tmp_path)
    (waiting,) = list_waiting(tmp_path)
    (waiting.folder / f"{waiting.name}.sent").unlink()
    step_once(tmp_path)
    with pytest.raises(StoreMoved, match="sent anew"):
        sink.check_file()
    sink.close()


def test_a_stream_without_a_recorder_that_the_server_lost_is_copied_with_an_end_of_its_own(
    tmp_path: Path, server: PushServer
) -> None:
    sink, sent = open_sink(tmp_path, server), make_events(5)
    sink.ingest(EventBatch(sent))
    sink.finish()
    sink.close()
    (waiting,) = list_waiting(tmp_path)
    server.streams["RUN", waiting.name] = bytearray(b'{"v":1,"mark":"beat"}\n')
    send(tmp_path, server)
    del server.streams["RUN", waiting.name]
    received, marks = server.read("RUN")
    assert received == sent
    assert isinstance(marks[-1], StreamEnd)


def test_nothing_more_is_written_of_a_run_that_was_deleted_on_the_server(
    tmp_path: Path, server: PushServer
) -> None:
    sink = open_sink(tmp_path, server)
    server.deleted.add("RUN")
    sink.ingest(EventBatch(make_events(5)))
    step_once(tmp_path)
    sink.check_file()
    assert sink.ingest(EventBatch(make_events(5))).deleted_run
    sink.close()
    send(tmp_path, server)
    assert list(list_waiting(tmp_path)) == []
    line = describe_delivery(tmp_path, "RUN", Target(server.address))
    assert line == f"run RUN was deleted or pruned on {server.address}; nothing more of it is sent"


def test_what_is_refused_of_one_run_is_not_said_of_another(
    tmp_path: Path, server: PushServer
) -> None:
    server.fault = lambda method, path: 413 if "/RUN/" in path and method == "PATCH" else None
    for run_id in ("RUN", "OTHER"):
        with closing(open_sink(tmp_path, server, run_id=run_id)) as sink:
            sink.ingest(EventBatch(make_events(1)))
    with closing(Sender(tmp_path, {})) as sending:
        for _ in range(5):
            sending.step(list(list_waiting(tmp_path)))
    target = Target(server.address)
    assert "413" in str(read_status(tmp_path, target, "RUN").error)
    assert read_status(tmp_path, target, "OTHER").error is None
    assert [item.run_id for item in list_waiting(tmp_path)] == ["RUN"]


def test_a_torn_last_line_of_a_recorder_that_died_is_left_out(
    tmp_path: Path, server: PushServer
) -> None:
    sink = open_sink(tmp_path, server)
    sink.ingest(EventBatch(make_events(3)))
    sink.close()
    (waiting,) = list_waiting(tmp_path)
    (_, path) = waiting.list_segments()[-1]
    path.write_bytes(path.read_bytes()[:-9])
    send(tmp_path, server)
    assert server.read("RUN")[0] == make_events(2)


@pytest.mark.parametrize("environment", [{}, {"COMPILEBOARD_TOKEN": "another-0123456789"}])
def test_a_sender_without_a_right_token_says_what_to_do_and_ends(
    tmp_path: Path, server: PushServer, environment: dict[str, str]
) -> None:
    server.token = "secret-0123456789"
    sink = open_sink(tmp_path, server)
    sink.ingest(EventBatch(make_events(1)))
    sink.close()
    assert not run_sender(tmp_path, **environment)
    error = str(read_status(tmp_path, Target(server.address)).error)
    assert error.startswith("the token is missing, wrong, expired or revoked")
    assert run_sender(tmp_path, COMPILEBOARD_TOKEN=server.token)
    assert server.read("RUN")[0] == make_events(1)
    assert server.token not in error


def test_a_full_disk_leaves_whole_lines_and_counts_the_others(
    tmp_path: Path, server: PushServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, write = open_sink(tmp_path, server), os.write
    room_bytes = 1000

    def write_until_full(descriptor: int, data: bytes) -> int:
        nonlocal room_bytes
        if room_bytes <= 0:
            raise OSError(errno.ENOSPC, "full")
        written = write(descriptor, data[:room_bytes])
        room_bytes -= written
        return written

    with monkeypatch.context() as full:
        full.setattr(outbox.os, "write", write_until_full)
        sink.ingest(EventBatch(make_events(50)))
    assert 0 < sink.event_count < 50
    assert sink.lost_count == 50 - sink.event_count
    sink.ingest(EventBatch(make_events(5, 100)))
    sink.finish()
    sink.close()
    send(tmp_path, server)
    received, marks = server.read("RUN")
    assert received == make_events(sink.event_count - 5) + make_events(5, 100)
    assert isinstance(marks[-1], StreamEnd)
    assert marks[-1].lost_count == sink.lost_count


def test_a_person_who_pushes_does_not_wait_for_the_next_try(
    tmp_path: Path, server: PushServer
) -> None:
    sink = open_sink(tmp_path, server)
    sink.ingest(EventBatch(make_events(1)))
    sink.close()
    server.fault = lambda method, path: 503
    with closing(Sender(tmp_path, {})) as sending:
        sending.step(list(list_waiting(tmp_path)))
        (line,) = sending._lines.values()
        line.pause.due_s += 3600
        server.fault = lambda method, path: None
        sending.step(list(list_waiting(tmp_path)))
        assert server.streams == {}
        (tmp_path / "sender.wake").touch()
        sending.step(list(list_waiting(tmp_path)))
    assert len(server.streams) == 1
