"""Digests of repros that this machine recorded itself, because a database can claim anything.

They are stored in one file per run in the user's state folder. Such repros run without `--trust`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_FOLDER = "folder:"
_RUNNING = (
    "preload",
    "settings",
    "backend",
)  # The fields of a manifest that are imported, set or looked up.


def note_own_repro(
    home_folder: Path,
    run_id: str,
    manifest: Mapping[str, Any],
    programs: Iterable[str | None],
    folders: Iterable[str] = (),
) -> None:
    path = _find_path(home_folder, run_id)
    if path is None:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    entries = (*_list_digests(manifest, programs), *(_FOLDER + quote(name) for name in folders))
    lines = "".join(f"{entry}\n" for entry in entries)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, lines.encode())
    finally:
        os.close(descriptor)


def find_own_folders(
    home_folder: Path, run_id: str, manifest: Mapping[str, Any], programs: Iterable[str | None]
) -> tuple[str, ...] | None:
    """Return the folders of the run of a repro that was recorded on this machine, None for other
    repros.
    """
    path = _find_path(home_folder, run_id)
    if path is None or find_other_writer(path):
        return None
    try:
        known = dict.fromkeys(path.read_text(encoding="ascii").split())
    except (OSError, UnicodeDecodeError):
        return None
    if not known or not known.keys() >= set(_list_digests(manifest, programs)):
        return None
    folders = (entry.removeprefix(_FOLDER) for entry in known if entry.startswith(_FOLDER))
    return tuple(map(unquote, folders))


def find_other_writer(path: Path) -> str | None:
    """Return a description of who else can change a path: it belongs to another user, or others may
    write to it.

    In a sticky folder such as /tmp, others can only add files. Links are followed.
    """
    own, seen = Path(os.path.realpath(path)), set[Path]()
    pending = [own, Path(os.path.abspath(path))]
    while pending:
        step = pending.pop()
        if step in seen:
            continue
        seen.add(step)
        try:
            status = step.lstat()
            if stat.S_ISLNK(status.st_mode):
                pending.append(Path(os.path.abspath(step.parent / os.readlink(step))))
        except OSError as error:
            return f"{str(step)!a} cannot be read: {error.strerror or error}"
        if status.st_uid != os.getuid() and (status.st_uid != 0 or step == own):
            return f"{str(step)!a} belongs to another user"
        is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if not stat.S_ISLNK(status.st_mode) and not is_sticky and status.st_mode & 0o022:
            others = "every user" if status.st_mode & 0o002 else "its group"
            return f"{str(step)!a} can be written by {others}"
        pending += step.parents
    return None


def _find_path(home_folder: Path, run_id: str) -> Path | None:
    return home_folder / "repro" / "own" / run_id if _RUN_ID.match(run_id) else None


def _list_digests(manifest: Mapping[str, Any], programs: Iterable[str | None]) -> Iterator[str]:
    for program in programs:
        if program:
            yield hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest()
    for name in _RUNNING:
        if manifest.get(name):
            body = json.dumps([name, manifest[name]], sort_keys=True, default=list)
            yield hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
