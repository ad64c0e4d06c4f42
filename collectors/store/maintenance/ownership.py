"""Whose the files beside a database are: root keeps a board whose server is another user."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def copy_owner(path: Path, model: Path) -> None:
    """Set the owner of what root made to that of `model`; anyone else's files are their own."""
    if os.geteuid() != 0:
        return
    with suppress(OSError):  # as in a container that has no such user
        status = model.stat()
        os.chown(path, status.st_uid, status.st_gid, follow_symlinks=False)
