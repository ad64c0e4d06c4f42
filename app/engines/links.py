"""ClickHouse's files on a read-only disk: chdb writes a lock beside them, so it gets a folder of
links.
"""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from compileboard.app.log_lines import log
from compileboard.collectors.store.errors import StoreError

_LOCK = "status"  # ClickHouse's own; a server that was killed left it
_MEMORY = "/dev/shm"  # noqa: S108  a file system in memory
_linked: dict[
    str, tempfile.TemporaryDirectory[str]
] = {}  # of this process, by the folder on the disk
_linking = threading.Lock()


def find_writable(path: str) -> str:
    """Return `path`, or links to its files if its disk is read-only. Raises StoreError if no links
    can be made.
    """
    try:
        is_read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:  # it is not there: whoever opens it says so
        return path
    if not is_read_only:
        return path
    with _linking:
        if path not in _linked:
            _linked[path] = _link(path)
            log(
                f"{path} is on a read-only disk: ClickHouse reads it through links in "
                f"{_linked[path].name}"
            )
        return _linked[path].name


def _link(path: str) -> tempfile.TemporaryDirectory[str]:
    refusal: OSError | None = None
    for root in (None, _MEMORY):
        try:
            folder = tempfile.TemporaryDirectory(
                prefix="compileboard-clickhouse-", dir=root, ignore_cleanup_errors=True
            )
        except OSError as error:
            refusal = refusal or error
            continue
        try:
            _link_files(Path(path), Path(folder.name))
        except OSError as error:
            refusal = refusal or error
            folder.cleanup()
            continue
        return folder
    assert refusal is not None
    raise StoreError(
        f"{path} is on a read-only disk, and no folder for links to it can be made "
        f"({refusal.strerror}). Set TMPDIR to "
        "a folder that can be written."
    )


def _link_files(source: Path, target: Path) -> None:
    for folder, names, files in os.walk(source):
        there = target / os.path.relpath(folder, source)
        there.mkdir(exist_ok=True)
        for name in names:
            with suppress(OSError):  # no link, but a folder
                (there / name).symlink_to(os.readlink(os.path.join(folder, name)))
        for name in files:
            if name != _LOCK or Path(folder) != source:
                (there / name).symlink_to(os.path.join(folder, name))
