"""Read a trace log by itself, without a run or a database: for tests, tools and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from compileboard.collectors.decode.records import TorchRecord, is_event
from compileboard.collectors.logs.trace_log import LogClock, ReadStats, TraceLog


def read_trace_log(
    path: str | Path,
    process_id: str,
    start_offset: int = 0,
    stats: ReadStats | None = None,
    selects: Callable[[str], bool] = is_event,
) -> Iterator[TorchRecord]:
    """Stream a log's records, those that become events by default, each with its line's byte offset
    as sequence.

    The prefix has neither year nor zone: both are taken from the first time since the epoch that
    the log itself carries, else the year from the file's own time (see log_clock). A last record
    whose payload is not whole yet is left for the next reading.

    Raises: OSError if the file cannot be read.
    """
    with Path(path).open("rb") as file:
        clock = LogClock.of(file.read(8 << 20), fallback_us=int(Path(path).stat().st_mtime * 1e6))
        file.seek(0)
        log = TraceLog(file, process_id, clock, start_offset=start_offset, stats=stats)
        yield from (captured for captured in log.read() if selects(captured.name))
