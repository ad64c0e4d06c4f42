"""Recorded torch output, unpacked once a test run."""

from __future__ import annotations

import json
import lzma
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.events import Event
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import PathNamer, TorchRecord
from compileboard.collectors.logs.trace_log import ReadStats
from tests.tools.trace_logs import read_trace_log

FOLDER = Path(__file__).parents[2] / "data" / "trace"
LOGS = sorted(path.name.removesuffix(".log.xz") for path in FOLDER.glob("*.log.xz"))
WITH_METRICS = sorted(
    path.name.removesuffix(".metrics.json.xz") for path in FOLDER.glob("*.metrics.json.xz")
)


def log_bytes(name: str) -> bytes:
    """Unpack a recorded log."""
    return lzma.decompress((FOLDER / f"{name}.log.xz").read_bytes())


@cache
def captured(name: str) -> tuple[TorchRecord, ...]:
    """Read a recorded log; each must be free of damage."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.log"
        path.write_bytes(log_bytes(name))
        stats = ReadStats()
        captured = tuple(read_trace_log(path, "p", stats=stats, selects=lambda name: True))
    assert stats.rejects.by_kind == {}
    return captured


@cache
def events(name: str) -> tuple[Event, ...]:
    """Decode a recorded log, with its programs' folders as roots."""
    decoder = Decoder(PathNamer(["/srv/bench", "/srv/zoo"]))
    return tuple(event for record in captured(name) for event in decoder.decode(record))


def torch_metrics(name: str) -> list[dict[str, Any]]:
    """Load what the same process's get_compilation_metrics() said."""
    loaded: list[dict[str, Any]] = json.loads(
        lzma.decompress((FOLDER / f"{name}.metrics.json.xz").read_bytes())
    )
    return loaded
