"""Owners of files beside a database, when root maintains another user's database."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def copy_owner(path: Path, model: Path) -> None:
    if os.geteuid() != 0:
        return
    with suppress(OSError):  # as in a container that has no such user
        status = model.stat()
        os.chown(path, status.st_uid, status.st_gid, follow_symlinks=False)
