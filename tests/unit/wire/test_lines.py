"""Lines of a stream, written and read back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract.events import (
    ArtifactSeen,
    ConfigSeen,
    Event,
    GuardFailure,
    Recompiled,
    ReproCaptured,
    RunEnded,
)
from compileboard.collectors.wire.lines import (
    MAX_LINE_BYTES,
    MIN_TEXT_BYTES,
    UnknownLine,
    WireError,
    dump_line,
    list_digests,
    load_line,
    read_line,
)

ARTIFACT = ArtifactSeen("p", 3, 17, name="graph", state="kept", text="é" * MIN_TEXT_BYTES)


def send(event: Event, lost: bool = False) -> Event:
    texts: dict[str, bytes] = {}
    line = dump_line(event, texts.__setitem__)
    body = read_line(line)
    assert set(list_digests(body)) == set(texts)
    return load_line(
        body, lambda digest: None if lost else texts[digest].decode("utf-8", "surrogatepass")
    )


@given(
    st.text(st.characters(exclude_categories=()), min_size=1),
    st.integers(1, 3 * MIN_TEXT_BYTES),
)
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
    assert len(dump_line(ARTIFACT, lambda digest, text: None)) < 500 < MAX_LINE_BYTES


def test_wire_says_what_a_lost_text_leaves() -> None:
    lost = send(ARTIFACT, lost=True)
    assert isinstance(lost, ArtifactSeen)
    assert (lost.text, lost.state, lost.name) == (None, "left_out", "graph")
    repro = send(
        ReproCaptured("p", 1, 2, program="x" * 9_999, dynamo_program="y" * 9_999), lost=True
    )
    assert isinstance(repro, ReproCaptured)
    assert (repro.program, repro.dynamo_program) == ("", None)


@pytest.mark.parametrize(
    "line", [b"", b"[1]", b"{}", b'{"v":true}', b'{"v": "1"}', b"\xff", b"[" * 9_999]
)
def test_wire_refuses_what_is_no_line(line: bytes) -> None:
    with pytest.raises(WireError):
        read_line(line)


@pytest.mark.parametrize(
    "texts",
    [5, {"text": []}, {"text": {"text": "x"}}, {"text": {"text": "../x"}}, {"text": {"text": 5}}],
)
def test_wire_refuses_texts_without_a_digest(texts: object) -> None:
    with pytest.raises(WireError, match="expected texts named by 32 hex digits"):
        list_digests({"v": 1, "texts": texts})


@pytest.mark.parametrize(
    "line", [b'{"v":2}', b'{"v":1,"kind":"later"}', b'{"v":1,"kind":[]}', b'{"v":1}']
)
def test_wire_tells_what_a_newer_collector_wrote(line: bytes) -> None:
    with pytest.raises(UnknownLine):
        read_line(line)


def test_wire_passes_over_fields_of_a_newer_collector() -> None:
    guard = {"cache_entry": "0/0", "reason": "r", "category": "c", "later": 1}
    line = {
        "v": 1,
        "kind": "recompiled",
        "process_id": "p",
        "sequence": 1,
        "time_us": 2,
        "guards": [guard],
        "new": 5,
    }
    event = load_line(read_line(json.dumps(line).encode()), lambda digest: None)
    assert isinstance(event, Recompiled)
    assert event.guards == [GuardFailure("0/0", "r", "c")]


def test_wire_lines_of_a_log_have_their_generation() -> None:
    for event in (ARTIFACT, RunEnded("p", 1, 2, "run", "finished")):
        body = read_line(dump_line(event, lambda digest, text: None, generation=3))
        assert (body["generation"], body["sequence"]) == (3, event.sequence)
