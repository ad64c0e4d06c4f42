"""Put into the search index what is not in it, in a child process; pages say how far it is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import collectors
from collectors.store.connect import open_reader
from collectors.store.search import list_pending


def start_indexing(path: str) -> int:
    """Start a child where there is something to index; return how many runs wait for it."""
    with closing(open_reader(path)) as reader:
        pending_count = len(list_pending(reader))
    if pending_count:
        root = str(Path(collectors.__file__).resolve().parent.parent)
        child = subprocess.Popen(
            [sys.executable, "-m", "collectors", "index", "--db", os.path.abspath(path)],
            cwd=root,  # -m looks there first
            env={**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # What it did not finish is found by the next start.
        threading.Thread(target=child.wait, name="indexing", daemon=True).start()
    return pending_count
