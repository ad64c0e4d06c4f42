"""Keep reading logs that grow: those that are there, those that come later, and those whose file is begun anew."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

from compileboard.collectors.importer.loader import Loader, Progress
from compileboard.collectors.read.sources import NoSuchLog, SourceGroup

INTERVAL_S = 0.5
HEARTBEAT_S = 5.0

Find = Callable[[], SourceGroup]


def await_log(
    path: str, find: Find, open_loader: Callable[[SourceGroup], Loader], say: Callable[[str], None]
) -> Loader:
    """Wait for the first record where the folder, or the file, is there already.

    Raises: NoSuchLog if nothing is there; KeyboardInterrupt.
    """
    told = False
    while True:
        try:
            return open_loader(find())
        except NoSuchLog:
            if not os.path.exists(path):
                raise
            if not told:
                say(f"{path}: no log with a record in it yet; waiting, Ctrl-C ends it")
            told = True
        time.sleep(INTERVAL_S)


def follow(loader: Loader, find: Find, progress: Progress) -> None:
    """Read what comes until Ctrl-C.

    Raises: StoreError, OSError.
    """
    beat_s = 0.0
    try:
        while not loader.imported.deleted:
            time.sleep(INTERVAL_S)
            _read_on(loader, find, progress)
            if time.monotonic() >= beat_s:
                loader.touch()
                beat_s = time.monotonic() + HEARTBEAT_S
    except KeyboardInterrupt:
        _read_on(loader, find, progress)  # what was written since
        loader.read(progress)  # and says what was learnt


def _read_on(loader: Loader, find: Find, progress: Progress) -> None:
    with suppress(NoSuchLog):  # deleted: what is held open is read to its end
        loader.look(find())
    loader.read(progress)
    loader.learn()
