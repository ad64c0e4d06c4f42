"""Folders of spools: those that wait to be recorded, and those set aside because they cannot be."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from compileboard.collectors.decode.values import clean_text
from compileboard.collectors.spool.manifest import read_manifest

ULID_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def home(environment: Mapping[str, str]) -> Path:
    """Return $COMPILEBOARD_HOME, by default a folder in the user's state directory."""
    chosen = environment.get("COMPILEBOARD_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    state = environment.get("XDG_STATE_HOME") or os.path.join(environment.get("HOME") or "~", ".local", "state")
    return Path(state).expanduser().absolute() / "compileboard"


def spool_root(environment: Mapping[str, str]) -> Path:
    """Return the folder that holds one spool folder a run."""
    return home(environment) / "spool"


def new_run_id(now_ms: int | None = None, lowest: int | None = None) -> str:
    """Make a ULID: 26 characters that sort by time; `lowest` are its last 80 bits, else random ones."""
    value = (time.time_ns() // 1_000_000 if now_ms is None else now_ms) << 80
    value |= secrets.randbits(80) if lowest is None else lowest
    characters = []
    for _ in range(26):
        value, digit = divmod(value, 32)
        characters.append(ULID_ALPHABET[digit])
    return "".join(reversed(characters))


REASON = "reason.txt"


@dataclass(frozen=True)
class SetAsideSpool:
    """A spool that was set aside, and why."""

    folder: Path
    reason: str

    @property
    def name(self) -> str:
        """Return what `retry` calls it."""
        return clean_text(self.folder.name)


def aside_root(environment: Mapping[str, str]) -> Path:
    """Return the folder of what was set aside."""
    return home(environment) / "set-aside"


def set_aside(folder: Path, reason: str) -> Path:
    """Move a spool beside the others; return where it is now.

    Raises: OSError if it cannot be moved.
    """
    root = folder.parent.parent / "set-aside"
    root.mkdir(mode=0o700, exist_ok=True)
    moved = _free(root / folder.name)
    folder.rename(moved)
    (moved / REASON).write_text(clean_text(reason) + "\n", encoding="utf-8")
    return moved


def _free(path: Path) -> Path:
    """Return a name that nothing has yet."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free


def list_set_aside(environment: Mapping[str, str]) -> list[SetAsideSpool]:
    """List what was set aside; nothing where there is no such folder."""
    try:
        return [
            SetAsideSpool(path, _reason(path)) for path in sorted(aside_root(environment).iterdir()) if path.is_dir()
        ]
    except OSError:
        return []


def _reason(folder: Path) -> str:
    try:
        return (folder / REASON).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "not recorded why"


def put_back(environment: Mapping[str, str], names: list[str], database: str | None) -> list[SetAsideSpool]:
    """Restore spools, all or the named ones, for another database if one is given; return them.

    Raises: ValueError if nothing has a name, or its run is to go into another database and is not described.
    """
    waiting = list_set_aside(environment)
    chosen = [spool for spool in waiting if not names or any(spool.name.startswith(name) for name in names)]
    if unknown := [name for name in names if not any(spool.name.startswith(name) for spool in waiting)]:
        known = ", ".join(spool.name for spool in waiting) or "nothing"
        raise ValueError(f"no run {unknown[0]!r} was set aside; set aside: {known}")
    root = spool_root(environment)
    root.mkdir(parents=True, mode=0o700, exist_ok=True)
    for spool in chosen:
        if database is not None:
            replace(read_manifest(spool.folder), database=os.path.abspath(database), server="").write(spool.folder)
        (spool.folder / REASON).unlink(missing_ok=True)
        spool.folder.rename(_free(root / spool.folder.name))
    return chosen
