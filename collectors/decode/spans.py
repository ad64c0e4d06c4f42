"""Decode the spans of a trace log: a chromium_event marks a phase's begin (B) or end (E), or an
instant (i).

Most records have only a name, a time and a compile, and are parsed with a single regular
expression.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from compileboard.collectors.contract.events import SpanSeen
from compileboard.collectors.contract.values import clean, clean_text
from compileboard.collectors.decode.records import TorchRecord

# A log has a TAB before each line of a text, its payload has none.
# Groups: name, time, whether that is rounded up, compile id, phase, thread.
PLAIN_PATTERN = (
    rb'\{\n\t?"name": "([ !#-\[\]-~]*)",\n\t?"ts": (\d{1,17})(?:\.(?:([5-9])|[0-4])\d*)?,\n'
    rb'\t?"args": \{(?:\n\t?"compile_id": "([ !#-\[\]-~]*)"\n\t?)?\},\n'
    rb'\t?"ph": "([BEi])",\n\t?"cat": "[^"\\\n]*",\n\t?"tid": (\d{1,9}),\n\t?"pid": '
    rb'\d+(?:,\n\t?"s": "\w")?\n\t?\}'
)
_PLAIN = re.compile(PLAIN_PATTERN.decode(), re.ASCII)
_HEAD = re.compile(rb'\t\{\n\t"name": "[^"\\\n]*",\n\t"ts": [\d.]+')
_TAIL = re.compile(
    rb'(?:\n\t"compile_id": "(?P<compile_id>[^"\\\n]*)")?\n\t\},\n(?P<rest>\t"ph": '
    rb'"[BEi]",\n\t"cat": "[^"\\\n]*",\n'
    rb'\t"tid": \d+,\n\t"pid": \d+(?:,\n\t"s": "\w")?\n\t\})\n?\Z'
)
_LONG_SPAN_BYTES = 2 << 10
_LONG_VALUE_CHARS = 200  # longer values of a span's args are kept only in the full payload


def make_plain_span(captured: TorchRecord) -> SpanSeen | None:
    if isinstance(captured.metadata, tuple):  # the reader has split it
        name, phase, at_us, thread, compile_id = captured.metadata
    else:
        plain = _PLAIN.fullmatch(captured.payload) if isinstance(captured.payload, str) else None
        if plain is None:
            return None
        name, ts, up, compile_id, phase, digits = plain.groups()
        at_us, thread = int(ts) + (up is not None), int(digits)
    compile_id = captured.compile_id or (
        None if compile_id == "None" else compile_id
    )  # written by str()
    return SpanSeen(
        captured.process_id,
        captured.sequence,
        captured.time_us,
        compile_id,
        captured.frame_id,
        captured.frame_compile_id,
        captured.attempt,
        captured.rank,
        name,
        phase,
        at_us,
        thread,
        {},
        captured.logged.whole if captured.logged else None,
        envelope=captured.envelope or {},
    )


def make_span(
    captured: TorchRecord, context: dict[str, Any], *, keep_text: bool
) -> SpanSeen | None:
    try:
        body = (
            json.loads(captured.payload) if isinstance(captured.payload, str) else captured.metadata
        )
        at_us = (
            math.floor(body["ts"] * 2 + 1) // 2
        )  # half a microsecond rounds up, as in a plain span
        phase, name = body["ph"], body["name"]
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
    args = body.get("args")
    thread = body.get("tid")
    if not isinstance(name, str) or phase not in ("B", "E", "i") or not 0 <= at_us < 2**62:
        return None
    args = args if isinstance(args, dict) else {}
    if (
        context["compile_id"] is None
        and isinstance(args.get("compile_id"), str)
        and args["compile_id"] != "None"
    ):
        context = {**context, "compile_id": args["compile_id"]}
    values = {
        key: value for key, value in args.items() if key != "compile_id" and value is not None
    }
    short = {key: value for key, value in values.items() if _is_short(value)}
    return SpanSeen(
        **context,
        name=clean_text(name),
        phase=phase,
        at_us=at_us,
        thread=thread if isinstance(thread, int) and abs(thread) < 2**62 else 0,
        args=clean(short),
        text=clean_text(captured.payload) if len(short) < len(values) and keep_text else None,
    )


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONG_VALUE_CHARS
    if isinstance(value, list | dict):
        return len(value) <= 10 and len(str(value)) <= _LONG_VALUE_CHARS
    return True


def shorten_span(buffer: bytes, begin: int, end: int) -> str | None:
    if end - begin <= _LONG_SPAN_BYTES:
        return None
    head, tail = _HEAD.match(buffer, begin), _TAIL.search(buffer, end - 400, end)
    if head is None or tail is None:
        return None
    compile_id = b'\n"compile_id": "%b"\n' % tail["compile_id"] if tail["compile_id"] else b""
    text = b'%b,\n"args": {%b},\n%b' % (head[0], compile_id, tail["rest"])
    return text.replace(b"\n\t", b"\n").removeprefix(b"\t").decode("utf-8", "replace")
