"""A span is the same, read in one match with its envelope, from its text, or as JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from hashlib import md5
from typing import Any

import pytest

from compileboard.collectors.contract.events import SpanSeen
from compileboard.collectors.contract.record_names import SPAN
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import LoggedPayload, TorchRecord
from compileboard.collectors.decode.spans import make_plain_span, make_span, shorten_span
from compileboard.collectors.logs.trace_log import LogClock, TraceLog

ENVELOPE = (
    '{"chromium_event": {}, "frame_id": 0, "frame_compile_id": 1, "attempt": 0, "has_payload": '
    '"%s"}'
)
BASE = {"name": "backend_compile", "ts": 1763695668523774, "args": {"compile_id": "0/1"}, "ph": "B"}


def write(**changes: Any) -> str:
    body = {**BASE, **changes, "cat": "dynamo_timed", "tid": 0, "pid": 0}
    return json.dumps(body, indent=0)


def log_of(text: str) -> bytes:
    envelope = ENVELOPE % md5(text.encode(), usedforsecurity=False).hexdigest()
    tabbed = "\n".join(f"\t{line}" for line in text.split("\n"))
    line = f"V1121 03:27:48.524000 3515 torch/_dynamo/utils.py:2126] {envelope}\n{tabbed}\n"
    return (line + 'V1121 03:27:48.524001 3515 torch/x.py:1] {"link": {}}\n').encode()


def read(text: str, *, texts: bool) -> SpanSeen:
    clock = LogClock.of(b"", fallback_us=1763695668000000)
    log = TraceLog(io.BytesIO(log_of(text)), "p", clock, texts=texts)
    (captured,) = (record for record in log.read() if record.name == SPAN)
    (span,) = Decoder().decode(captured)
    assert isinstance(span, SpanSeen)
    return span


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ts": 1763695668523774.75},
        {"ts": 12.25},
        {"ts": 12.5},
        {"ts": 1763695668523774.5},
        {"ph": "E", "args": {}},
        {"ph": "i", "args": {"compile_id": "None"}},
    ],
)
def test_a_plain_span_is_the_same_in_one_match_from_its_text_and_as_json(
    changes: dict[str, Any],
) -> None:
    text = write(**changes)
    captured = TorchRecord(
        "p", 0, 1, SPAN, {}, text, frame_id=0, frame_compile_id=1, attempt=0, logged=LoggedPayload()
    )
    plain = make_plain_span(captured)
    context = {
        name: getattr(captured, name)
        for name in ("process_id", "sequence", "time_us", "compile_id")
    }
    context |= {"frame_id": 0, "frame_compile_id": 1, "attempt": 0}
    assert plain is not None
    assert plain == make_span(captured, context, keep_text=True)
    assert (
        replace(read(text, texts=False), time_us=1)
        == replace(read(text, texts=True), time_us=1)
        == plain
    )


@pytest.mark.parametrize(
    "changes", [{"args": {"key": "x"}}, {"name": "na\u00efve"}, {"name": 'a "b"'}]
)
def test_what_says_more_is_read_as_json(changes: dict[str, Any]) -> None:
    text = write(**changes)
    assert make_plain_span(TorchRecord("p", 0, 1, SPAN, {}, text)) is None
    span = read(text, texts=False)
    assert (span.name, span.args) == (changes.get("name", BASE["name"]), changes.get("args", {}))


def test_a_long_span_is_shortened_to_a_plain_one() -> None:
    text = write(args={"detail": "x" * 4_000, "compile_id": "0/1"})
    data = log_of(text)
    begin = data.index(b"\n\t{") + 1
    short = shorten_span(data, begin, data.index(b"V1121", begin))
    assert short is not None and len(short) < 300
    span = read(text, texts=False)
    assert (span.name, span.at_us, span.compile_id, span.args) == (
        BASE["name"],
        BASE["ts"],
        "0/1",
        {},
    )
