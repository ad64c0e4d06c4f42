"""Search indexing in a child process; pages show its progress."""

from __future__ import annotations

import os
import subprocess
import threading
from contextlib import closing

from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.search import list_pending
from compileboard.start import own_command


def start_indexing(path: str) -> int:
    with closing(open_reader(path)) as reader:
        pending_count = len(list_pending(reader))
    if pending_count:
        child = subprocess.Popen(
            own_command("compileboard.collectors", "index", "--db", os.path.abspath(path)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # What it did not finish is found by the next start.
        threading.Thread(target=child.wait, name="indexing", daemon=True).start()
    return pending_count
