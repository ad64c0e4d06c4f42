"""Recover the graphs that processes of a run were running when they died."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from compileboard.collectors.contract.spool_format import (
    GRAPHS_SUFFIX,
    RECORDS_SUFFIX,
    RUNNING_BYTES,
    RUNNING_SUFFIX,
    read_running,
)
from compileboard.collectors.record.spool import MAX_LINE_BYTES, is_file, list_files

OUTSIDE = "the process died outside compiled code; this graph ran last"


def promote_crashes(folder: Path, signal: str | None) -> int:
    """Add to the records of each crashed process the graph that it was running; return the number
    of graphs.

    No process may still write to the spool. One that exits normally deletes the file that names its
    running graph.
    """
    count = 0
    running = list_files(folder, RUNNING_SUFFIX)
    for path in running:
        stem = path.name.removesuffix(RUNNING_SUFFIX)
        graphs = folder / f"{stem}{GRAPHS_SUFFIX}"
        records = folder / f"{stem}{RECORDS_SUFFIX}"
        try:
            lines = _read_graph(path, graphs, signal if len(running) == 1 else None)
            if lines and is_file(records):
                with records.open("ab") as file:
                    file.write(lines)
                count += 1
            path.unlink()
            graphs.unlink(missing_ok=True)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, struct.error):
            continue  # damaged when the process died: its other records are intact
    return count


def _read_graph(running: Path, graphs: Path, signal: str | None) -> bytes:
    now, last = struct.unpack("qq", running.read_bytes()[:RUNNING_BYTES])
    number = now or (last if signal else 0)
    if number == 0 or not is_file(graphs):
        return b""
    records = read_running(graphs, number, MAX_LINE_BYTES)
    manifest = records[0]["m"]["manifest"]
    if signal:
        manifest["signal"] = signal
    if not now:
        manifest["message"] = OUTSIDE
    return b"".join(b"\n" + json.dumps(record).encode() + b"\n" for record in records)
