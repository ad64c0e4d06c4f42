"""Captured graphs: a record becomes an event whose manifest has trusted types."""

from __future__ import annotations

from typing import Any

import pytest

from compileboard.collectors.contract.events import ReproCaptured, ReproValues, UnknownRecordSeen
from compileboard.collectors.contract.repros import MAX_PROGRAM_CHARS
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import PathNamer, TorchRecord

MANIFEST: dict[str, Any] = {
    "format": 1,
    "kind": "compile",
    "level": "aot",
    "error_type": "LoweringException",
}


def decode(manifest: Any, payload: Any = None, **metadata: Any) -> Any:
    payload = {"program": "class Repro: ..."} if payload is None else payload
    metadata = {"position": 2, "manifest": manifest, **metadata}
    captured = TorchRecord("p", 1, 2, "repro", metadata, payload, frame_id=0, frame_compile_id=1)
    (event,) = Decoder(PathNamer(["/repo"])).decode(captured)
    return event


def test_a_record_becomes_an_event_with_its_programs_and_compile() -> None:
    payload = {"program": "a", "dynamo_program": "b"}
    event = decode({**MANIFEST, "file": "/repo/train.py"}, payload, failure_position=4)
    assert isinstance(event, ReproCaptured)
    assert (event.position, event.program, event.dynamo_program, event.compile_id) == (
        2,
        "a",
        "b",
        "0/1",
    )
    assert event.failure_position == 4
    assert event.manifest == {**MANIFEST, "file": "train.py"}


@pytest.mark.parametrize(
    "manifest",
    [
        None,
        [],
        {},
        {**MANIFEST, "kind": "other"},
        {**MANIFEST, "format": 2},
        {**MANIFEST, "message": {"a": 1}},
        {**MANIFEST, "versions": []},
        {**MANIFEST, "inputs": [{"dtype": "float32"}]},
        {**MANIFEST, "inputs": [{"name": "x", "shape": "8"}]},
    ],
)
def test_a_manifest_that_is_none_is_kept_as_it_came(manifest: Any) -> None:
    event = decode(manifest)
    assert isinstance(event, UnknownRecordSeen)
    assert event.body["metadata"]["manifest"] == manifest


@pytest.mark.parametrize("program", [5, "x" * (MAX_PROGRAM_CHARS + 1)], ids=["number", "long"])
def test_a_program_that_is_no_text_or_too_long_is_not_taken(program: Any) -> None:
    assert isinstance(decode(MANIFEST, {"program": program}), UnknownRecordSeen)


def test_values_are_passed_on_as_they_are() -> None:
    (event,) = Decoder().decode(
        TorchRecord("p", 1, 2, "repro_values", {"position": 2, "digest": "ab"}, "eJw=")
    )
    assert event == ReproValues("p", 1, 2, 2, "ab", "eJw=")
    (event,) = Decoder().decode(TorchRecord("p", 1, 2, "repro_values", {"position": 2}, "eJw="))
    assert isinstance(event, UnknownRecordSeen)
