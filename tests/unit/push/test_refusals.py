"""A record refused for its content is lost alone, and reported; other refusals wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract.events import CompileStarted
from compileboard.collectors.logs.source import EventBatch
from compileboard.collectors.push.delivery import make_loss_line
from compileboard.collectors.push.outbox import add_bundle, list_waiting
from compileboard.collectors.push.outbox_report import list_waiting_runs
from compileboard.collectors.push.sender import Sender, read_losses
from compileboard.collectors.push.target import Target
from compileboard.collectors.wire.lines import checksum_of, read_line
from compileboard.collectors.wire.marks import SpoolRejects, StreamEnd, load_mark
from tests.unit.push.push_server import PushServer
from tests.unit.push.test_sender import make_events, open_sink, send, server

__all__ = ["server"]
POISON = CompileStarted("P", 999, 50, "1/0", function="poison")


@pytest.fixture(autouse=True)
def no_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "compileboard.collectors.record.outbox_sink.spawn_sender", lambda root: None
    )


def write(root: Path, server: PushServer, *, text: str = "") -> None:
    sink = open_sink(root, server)
    sink.ingest(EventBatch([*make_events(40, text=text), POISON, *make_events(40, 40)]))
    sink.finish()
    sink.close()


@pytest.mark.parametrize("status", [400, 413])
def test_a_line_that_is_refused_is_lost_alone_and_told_in_its_place(
    tmp_path: Path, server: PushServer, status: int
) -> None:
    server.refusal = lambda method, body: status if b'"poison"' in body else None
    write(tmp_path, server)
    send(tmp_path, server)
    events, marks = server.read("RUN")
    assert events == make_events(80)
    (told,) = [mark for mark in marks if isinstance(mark, SpoolRejects)]
    assert (told.rejects.count("not_taken"), told.rejects.by_kind["not_taken"].example) == (
        1,
        f"the server answers {status} not this one",
    )
    ((_, body),) = server.streams.items()
    end, before = marks[-1], bytes(body)[: bytes(body).rindex(b"\n", 0, -1) + 1]
    assert isinstance(end, StreamEnd)
    assert (end.size_bytes, end.checksum) == (len(before), checksum_of(before))
    assert read_losses(tmp_path, "RUN") == f"1 line lost: the server answers {status} not this one"


def test_requests_that_are_too_long_are_sent_in_parts_and_nothing_is_lost(
    tmp_path: Path, server: PushServer
) -> None:
    server.refusal = lambda method, body: 413 if method == "PATCH" and len(body) > 900 else None
    write(tmp_path, server)
    send(tmp_path, server)
    assert server.read("RUN")[0] == [*make_events(40), POISON, *make_events(40, 40)]


@pytest.mark.parametrize("what", [b'"poison"', b"v"])
def test_what_is_refused_once_alone_or_whatever_it_holds_is_not_lost(
    tmp_path: Path, server: PushServer, what: bytes
) -> None:
    left = {b'"poison"': 1, b"v": 20}[
        what
    ]  # of requests of one line: all others are refused until then

    def refuse(method: str, body: bytes) -> int | None:
        nonlocal left
        left -= what in body and body.count(b"\n") == 1
        return 400 if what in body and left >= 0 else None

    server.refusal = refuse
    write(tmp_path, server)
    send(tmp_path, server)
    assert server.read("RUN")[0] == [*make_events(40), POISON, *make_events(40, 40)]
    assert (left < 0, read_losses(tmp_path, "RUN")) == (True, None)


def refuse_texts(method: str, body: bytes) -> int | None:
    is_several = method == "POST" and not body.startswith(b"{")
    return 413 if is_several or (method == "PUT" and body.startswith((b"3", b"7"))) else None


def refuse_all_texts(method: str, body: bytes) -> int | None:
    return 413 if method == "PUT" or not body.startswith(b"{") else None


@pytest.mark.parametrize(("refusal", "count"), [(refuse_texts, 12), (refuse_all_texts, 0)])
def test_a_text_that_is_refused_is_told_as_dropped_unless_all_are(
    tmp_path: Path, server: PushServer, refusal: Callable[[str, bytes], int | None], count: int
) -> None:
    server.refusal = refusal
    write(tmp_path, server, text="x" * 5000)
    if not count:
        with pytest.raises(AssertionError, match="not enough"):
            send(tmp_path, server, most_steps=20)
        server.refusal = lambda method, body: None
    send(tmp_path, server)
    assert len(server.dropped) == count
    assert len(server.read("RUN")[0]) == 121
    assert ("12 texts lost" in str(read_losses(tmp_path, "RUN"))) == bool(count)


def test_a_text_that_is_damaged_on_the_disk_holds_nothing_up(
    tmp_path: Path, server: PushServer
) -> None:
    write(tmp_path, server, text="x" * 5000)
    next(tmp_path.glob("RUN/texts/*")).write_bytes(b"\x1f\x8b damaged")
    send(tmp_path, server)
    assert (len(server.dropped), len(server.texts)) == (1, 39)


def test_a_bundle_that_is_refused_three_times_is_set_aside_until_somebody_pushes(
    tmp_path: Path, server: PushServer
) -> None:
    (tmp_path / "run.db").write_bytes(b"bundle")
    add_bundle(tmp_path / "box", "RUN", tmp_path / "run.db", Target(server.address))
    root = tmp_path / "box"
    server.fault = lambda method, path: 413 if "/imports" in path else None
    with pytest.raises(AssertionError, match="not enough"):
        send(root, server, most_steps=20)
    assert server.requests["POST"] == 3
    assert not Sender(root, {}).run()  # ends at once
    (run,) = list_waiting_runs(root)
    assert "413" in str(run.error)
    (root / "sender.wake").touch()
    with pytest.raises(AssertionError, match="not enough"):
        send(root, server, most_steps=5)
    assert (server.requests["POST"], [item.is_set_aside() for item in list_waiting(root)]) == (
        4,
        [True],
    )


@given(st.text(min_size=200, max_size=400), st.integers(1, 10**6))
def test_what_stands_in_for_a_line_has_its_length_and_checksum(text: str, count: int) -> None:
    line = text.encode("utf-8", "replace").replace(b"\n", b" ") + b"\n"
    stand_in = make_loss_line(line, "a" * 32, count, "the server answers 413")
    assert stand_in is not None
    assert (len(stand_in), checksum_of(stand_in)) == (len(line), checksum_of(line))
    mark = load_mark(read_line(stand_in))
    assert isinstance(mark, SpoolRejects)
    assert mark.rejects.count("not_taken") == count
    assert make_loss_line(b'{"v":1}\n', "s", 1, "") is None
