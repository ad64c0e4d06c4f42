"""Lines of a stream, written and read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract.events import ArtifactSeen, ConfigSeen, Event, ReproCaptured, RunEnded
from compileboard.collectors.wire.lines import (
    LARGEST_LINE_BYTES,
    SHORTEST_TEXT_BYTES,
    WireError,
    dump_line,
    dump_mark,
    list_digests,
    load_line,
    read_line,
)

ARTIFACT = ArtifactSeen("p", 3, 17, name="graph", state="kept", text="é" * SHORTEST_TEXT_BYTES)


def send(event: Event, lost: bool = False) -> Event:
    texts: dict[str, bytes] = {}
    line = dump_line(event, texts.__setitem__)
    body = read_line(line)
    assert set(list_digests(body)) == set(texts)
    return load_line(line, body, lambda digest: None if lost else texts[digest].decode("utf-8", "surrogatepass"))


@given(st.text(st.characters(exclude_categories=()), min_size=1), st.integers(1, 3 * SHORTEST_TEXT_BYTES))
def test_wire_gives_any_text_back(text: str, length: int) -> None:
    long = (text * length)[:length]
    for event in (
        ArtifactSeen("p", 1, 2, name=long[:9], state="kept", text=long),
        ConfigSeen("p", 1, 2, "hash", "dynamo", long),
        ReproCaptured("p", 1, 2, program=long, dynamo_program=long),
        RunEnded("p", 1, 2, "run", long),
    ):
        assert send(event) == event


def test_wire_sends_a_long_text_by_its_content() -> None:
    assert len(dump_line(ARTIFACT, lambda digest, text: None)) < 500 < LARGEST_LINE_BYTES


def test_wire_says_what_a_lost_text_leaves() -> None:
    lost = send(ARTIFACT, lost=True)
    assert isinstance(lost, ArtifactSeen)
    assert (lost.text, lost.state, lost.name) == (None, "left_out", "graph")
    repro = send(ReproCaptured("p", 1, 2, program="x" * 9_999, dynamo_program="y" * 9_999), lost=True)
    assert isinstance(repro, ReproCaptured)
    assert (repro.program, repro.dynamo_program) == ("", None)


@pytest.mark.parametrize("line", [b"", b"[1]", b"{}", b'{"v": "1"}', b"\xff", b"[" * 9_999])
def test_wire_refuses_what_is_no_line(line: bytes) -> None:
    with pytest.raises(WireError):
        read_line(line)


@pytest.mark.parametrize(
    "texts", [5, {"text": []}, {"text": {"text": "x"}}, {"text": {"text": "../x"}}, {"text": {"text": 5}}]
)
def test_wire_refuses_texts_without_a_digest(texts: object) -> None:
    with pytest.raises(WireError, match="expected texts named by 32 hex digits"):
        list_digests({"v": 1, "texts": texts})


def test_wire_marks_are_lines_of_their_own() -> None:
    body = read_line(dump_mark("end", size_bytes=5, checksum=7))
    assert (body["mark"], body["size_bytes"], list_digests(body)) == ("end", 5, [])
    with pytest.raises(WireError, match="known: beat"):
        dump_mark("begin")
