"""A spool's journal: events that our own commands add to a run, such as bench's results."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from compileboard.collectors.contract.events import Event, dump_event, load_event
from compileboard.collectors.contract.spool_format import JOURNAL_NAME
from compileboard.collectors.contract.values import fit_event
from compileboard.collectors.spool.reader import SpoolReader


def append_event(folder: Path, event: Event) -> None:
    """Append an event to the spool, atomically and immediately. Raises OSError."""
    line = dump_event(event).encode() + b"\n"
    descriptor = os.open(
        folder / JOURNAL_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
    )
    try:
        size = os.fstat(descriptor).st_size
        if os.write(descriptor, line) != len(line):  # half a line would spoil the next one
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / JOURNAL_NAME))
    finally:
        os.close(descriptor)


def read_journal(reader: SpoolReader) -> Iterator[Event]:
    for number, line in reader.read_lines(reader.folder / JOURNAL_NAME):
        try:
            event, notes = fit_event(load_event(line.decode()))
        except (ValueError, TypeError, AttributeError, RecursionError):
            event, notes = None, []
        if event is None:
            reader.reject(JOURNAL_NAME, "bad_event", number, line)
            continue
        for note in notes:
            reader.reject(JOURNAL_NAME, "bad_field", number, note)
        yield event
