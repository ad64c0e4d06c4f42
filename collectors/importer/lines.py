"""Tell a program how an import goes: one JSON object a line on standard output."""

from __future__ import annotations

import json
import time
from typing import Any, TextIO

from compileboard.collectors.importer.budget import Paused
from compileboard.collectors.importer.loader import Imported, Progress
from compileboard.collectors.read.sources import LimitExceeded, SourceGroup

INTERVAL_S = 0.25


class ProgressLines:
    """Write progress now and then, and how it ended: `done` or `failed`, with a sentence for people.

    A reader that goes away ends the import with BrokenPipeError: nobody is left to bound it.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last_s = 0.0
        self._total_bytes: int | None = None
        self._read_bytes = 0
        self._imported: Imported | None = None

    def begin(self, group: SourceGroup, imported: Imported) -> Progress:
        """Return what takes the bytes read so far."""
        self._imported = imported
        sizes = [source.size_bytes for source in group.sources]
        # What a compressed log unpacks to is known only when it is read.
        self._total_bytes = None if None in sizes else sum(size or 0 for size in sizes)

        def show(read_bytes: int) -> None:
            self._read_bytes = read_bytes
            now_s = time.monotonic()
            if now_s - self._last_s >= INTERVAL_S:
                self._last_s = now_s
                self._write("reading", imported)

        show(0)
        return show

    def end(self, imported: Imported, remarks: list[str]) -> None:
        """Say what the import did, and what a person should know of it."""
        self._write("done", imported, deleted=imported.deleted, known_run=imported.known_run, remarks=remarks)

    def fail(self, error: Exception) -> None:
        """Say why it ended."""
        if isinstance(error, Paused) and self._imported is not None:
            self._write("paused", self._imported)
        else:
            self._put({"state": "failed", "message": str(error), "limit": isinstance(error, LimitExceeded)})

    def _write(self, state: str, imported: Imported, **more: Any) -> None:
        self._put(
            {
                "state": state,
                "run_id": imported.run_id,
                "name": imported.name,
                "log_count": imported.log_count,
                "record_count": imported.record_count,
                "read_bytes": max(self._read_bytes, imported.read_bytes),
                "total_bytes": self._total_bytes,
                "rejects": {kind: it.count for kind, it in sorted(imported.rejects.by_kind.items())},
                **more,
            }
        )

    def _put(self, line: dict[str, Any]) -> None:
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()
