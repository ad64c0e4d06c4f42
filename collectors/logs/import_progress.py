"""Limits, progress and interruption of an import, checked between batches."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TextIO

from compileboard.collectors.logs.discovery import SourceGroup
from compileboard.collectors.logs.log_loader import ImportSummary, Progress
from compileboard.collectors.logs.streams import LimitExceeded, Limits

PAUSE_SIGNAL = signal.SIGUSR1


class Paused(ValueError):
    """The import was asked to stop. Data read so far is kept, and importing again reads the
    rest.
    """


class Budget:
    """Limits on the records and rows of one import; rows are those inserted, updated or deleted."""

    def __init__(self, connection: sqlite3.Connection, limits: Limits) -> None:
        self._connection = connection
        self.limits = limits
        self._before_count = connection.total_changes
        self.is_pausing = False

    def listen(self) -> None:
        signal.signal(PAUSE_SIGNAL, self._pause)

    def _pause(self, _signal: int, _frame: FrameType | None) -> None:
        self.is_pausing = True

    def check_limits(self, label: str, record_count: int) -> None:
        """Raise LimitExceeded if the import has stored more records or rows than its limits allow,
        or Paused if a pause was requested.
        """
        row_count = self._connection.total_changes - self._before_count
        for used, most, what in (
            (record_count, self.limits.records, "records"),
            (row_count, self.limits.rows, "rows"),
        ):
            if most is not None and used > most:
                raise LimitExceeded(
                    f"{label}: it has {used:,} {what} so far, the limit is {most:,} {what} "
                    "for one import; import "
                    "fewer logs at once.",
                    what,
                )
        if self.is_pausing:
            raise Paused(
                f"{label}: stopped between two batches; importing it again reads the rest."
            )

    def watch(self, label: str, count_records: Callable[[], int], progress: Progress) -> Progress:
        def report(read_bytes: int) -> None:
            progress(read_bytes)
            self.check_limits(label, count_records())

        return report


INTERVAL_S = 0.25


class ProgressLines:
    """Writes an import's progress as lines, ending with `done` or `failed` and a message.

    If the reader closes the pipe, BrokenPipeError ends the import.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last_s = 0.0
        self._total_bytes: int | None = None
        self._read_bytes = 0
        self._imported: ImportSummary | None = None

    def begin(self, group: SourceGroup, imported: ImportSummary) -> Progress:
        self._imported = imported
        sizes = [source.size_bytes for source in group.sources]
        # The unpacked size of a compressed log is known only after reading.
        self._total_bytes = None if None in sizes else sum(size or 0 for size in sizes)

        def show(read_bytes: int) -> None:
            self._read_bytes = read_bytes
            now_s = time.monotonic()
            if now_s - self._last_s >= INTERVAL_S:
                self._last_s = now_s
                self._write("reading", imported)

        show(0)
        return show

    def end(self, imported: ImportSummary, remarks: list[str]) -> None:
        self._write(
            "done",
            imported,
            deleted=imported.deleted,
            known_run=imported.known_run,
            remarks=remarks,
        )

    def fail(self, error: Exception) -> None:
        if isinstance(error, Paused) and self._imported is not None:
            self._write("paused", self._imported)
        else:
            self._write_line(
                {"state": "failed", "message": str(error), "limit": getattr(error, "limit", None)}
            )

    def _write(self, state: str, imported: ImportSummary, **more: Any) -> None:
        self._write_line(
            {
                "state": state,
                "run_id": imported.run_id,
                "name": imported.name,
                "log_count": imported.log_count,
                "record_count": imported.record_count,
                "read_bytes": max(self._read_bytes, imported.read_bytes),
                "total_bytes": self._total_bytes,
                "rejects": {
                    kind: reject.count for kind, reject in sorted(imported.rejects.by_kind.items())
                },
                **more,
            }
        )

    def _write_line(self, line: dict[str, Any]) -> None:
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()
