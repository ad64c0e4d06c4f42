"""What a command of ours says about its run, kept in the run's spool until it is recorded: bench's results."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from compileboard.collectors.contract.events import Event, dump_event, load_event
from compileboard.collectors.decode.values import fit_event
from compileboard.collectors.spool.reader import is_file

NAME = "said.events"


def append_event(folder: Path, event: Event) -> None:
    """Append an event to a run's spool, whole and at once: it is safe from whatever happens to us afterwards.

    Raises: OSError if the disk does not take it; nothing of it is there then.
    """
    line = dump_event(event).encode() + b"\n"
    descriptor = os.open(folder / NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if os.write(descriptor, line) != len(line):  # half a line would spoil the next one
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / NAME))
    finally:
        os.close(descriptor)


class OwnEvents:
    """Follow the events that were said, only whole lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.offset = self.line = 0

    def read(self, reject: Callable[[str, str, int, bytes | str], object] = lambda *_: None) -> Iterator[Event]:
        """Yield what was said since the last call; what is no event, or does not fit one, goes to `reject`."""
        if not is_file(self.folder / NAME):
            return
        with (self.folder / NAME).open("rb") as file:
            file.seek(self.offset)
            body = file.read()
        for line in body[: body.rfind(b"\n") + 1].split(b"\n")[:-1]:
            self.offset += len(line) + 1
            self.line += 1
            try:
                event, notes = fit_event(load_event(line.decode()))
            except (ValueError, TypeError, AttributeError, RecursionError):
                event, notes = None, []
            if event is None:
                reject(NAME, "bad_event", self.line, line)
                continue
            for note in notes:
                reject(NAME, "bad_field", self.line, note)
            yield event
