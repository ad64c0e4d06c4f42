"""Streams of many boxes from one recorded run: the same events under other ids."""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterator
from functools import cache

from benchmarks.common import ROOT
from compileboard.collectors.wire.lines import REQUEST_BYTES, checksum_of
from compileboard.collectors.wire.marks import Heartbeat, StreamEnd, dump_mark

EVENTS = ROOT / "tests/data/events/torch2.11-cuda-on_cuda.jsonl.xz"
_PROCESS = re.compile(rb'"process_id":"([^"]+)"')
_RUN = re.compile(rb'"run_id":"([^"]+)"')


@cache
def read_lines() -> tuple[bytes, ...]:
    """Read the recorded events, a line each."""
    return tuple(lzma.open(EVENTS).read().splitlines(keepends=True))


def build_stream(number: int, *, repeats: int = 1) -> tuple[str, bytes]:
    """Build a box's run and its stream; each repeat is as if further processes had recorded the
    same.
    """
    run_id = f"01FLEET{number:019d}"
    parts = [dump_mark(Heartbeat("benchmark"))]
    for repeat in range(repeats):
        suffix = f"-{number}-{repeat}".encode()
        for line in read_lines():
            own = _PROCESS.sub(rb'"process_id":"\1' + suffix + b'"', line)
            parts.append(_RUN.sub(b'"run_id":"' + run_id.encode() + b'"', own))
    lines = b"".join(parts)
    return run_id, lines + dump_mark(StreamEnd(len(lines), checksum_of(lines)))


def cut(lines: bytes, max_bytes: int = REQUEST_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines as a box sends them, each part with its offset."""
    offset = 0
    while offset < len(lines):
        end = lines.rfind(b"\n", offset, offset + max_bytes) + 1 or lines.index(b"\n", offset) + 1
        yield offset, lines[offset:end]
        offset = end
