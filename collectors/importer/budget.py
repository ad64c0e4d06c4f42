"""What an import of other people's files may use, and a way to stop it between two batches."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from types import FrameType

from compileboard.collectors.importer.loader import Progress
from compileboard.collectors.read.sources import LimitExceeded, Limits

PAUSE_SIGNAL = signal.SIGUSR1


class Paused(ValueError):
    """An import was asked to stop; what was read is kept, and importing again reads the rest."""


class Budget:
    """Hold one import to its records and rows. Rows are what it inserted, changed or deleted in any table."""

    def __init__(self, connection: sqlite3.Connection, limits: Limits) -> None:
        self._connection = connection
        self.limits = limits
        self._before_count = connection.total_changes
        self.is_pausing = False

    def listen(self) -> None:
        """Stop at the next batch once the signal comes."""
        signal.signal(PAUSE_SIGNAL, self._pause)

    def _pause(self, _signal: int, _frame: FrameType | None) -> None:
        self.is_pausing = True

    def check(self, label: str, record_count: int) -> None:
        """Compare what was used so far with the limits.

        Raises: LimitExceeded, Paused.
        """
        row_count = self._connection.total_changes - self._before_count
        for used, most, what in (
            (record_count, self.limits.records, "records"),
            (row_count, self.limits.rows, "rows"),
        ):
            if most is not None and used > most:
                raise LimitExceeded(
                    f"{label}: {used:,} {what} came of it so far, the limit is {most:,} {what} for one import; import "
                    "fewer logs at once."
                )
        if self.is_pausing:
            raise Paused(f"{label}: stopped between two batches; importing it again reads the rest.")

    def watch(self, label: str, count_records: Callable[[], int], progress: Progress) -> Progress:
        """Return what takes the bytes read so far and checks, batch by batch."""

        def check(read_bytes: int) -> None:
            progress(read_bytes)
            self.check(label, count_records())

        return check
