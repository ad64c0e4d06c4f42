"""Folders of spools that wait to be recorded or were set aside."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from compileboard.collectors.contract.values import clean_text
from compileboard.collectors.spool.manifest import read_manifest

ULID_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def home(environment: Mapping[str, str]) -> Path:
    """Return $COMPILEBOARD_HOME, by default a folder in the user's state directory."""
    chosen = environment.get("COMPILEBOARD_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    state = environment.get("XDG_STATE_HOME") or os.path.join(
        environment.get("HOME") or "~", ".local", "state"
    )
    return Path(state).expanduser().absolute() / "compileboard"


def spool_root(environment: Mapping[str, str]) -> Path:
    return home(environment) / "spool"


def new_run_id(now_ms: int | None = None, lowest: int | None = None) -> str:
    """Return a ULID: 26 characters that sort by time; `lowest` are its last 80 bits, random by
    default.
    """
    value = (time.time_ns() // 1_000_000 if now_ms is None else now_ms) << 80
    value |= secrets.randbits(80) if lowest is None else lowest
    characters = []
    for _ in range(26):
        value, digit = divmod(value, 32)
        characters.append(ULID_ALPHABET[digit])
    return "".join(reversed(characters))


REASON = "reason.txt"
SET_ASIDE = "set-aside"


@dataclass(frozen=True)
class UnrecordedSpool:
    folder: Path
    reason: str

    @property
    def name(self) -> str:
        return clean_text(self.folder.name)

    @property
    def state(self) -> str:
        return "set aside" if self.folder.parent.name == SET_ASIDE else "waiting"


def aside_root(environment: Mapping[str, str]) -> Path:
    return home(environment) / SET_ASIDE


def set_aside(folder: Path, reason: str) -> Path:
    """Move a spool to the set-aside folder; return its new path. Raises OSError."""
    root = folder.parent.parent / SET_ASIDE
    root.mkdir(mode=0o700, exist_ok=True)
    moved = _free(root / folder.name)
    folder.rename(moved)
    note_reason(moved, reason)
    return moved


def note_reason(folder: Path, reason: str) -> bool:
    if _read_reason(folder) == clean_text(reason):
        return False
    (folder / REASON).write_text(clean_text(reason) + "\n", encoding="utf-8")
    return True


def _free(path: Path) -> Path:
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free


def list_unrecorded(environment: Mapping[str, str]) -> list[UnrecordedSpool]:
    paths = [path for path in aside_root(environment).glob("*") if path.is_dir()]
    paths += [path.parent for path in spool_root(environment).glob(f"*/{REASON}")]
    return [
        UnrecordedSpool(path, _read_reason(path) or "not recorded why") for path in sorted(paths)
    ]


def _read_reason(folder: Path) -> str | None:
    try:
        return (folder / REASON).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def put_back(
    environment: Mapping[str, str], names: list[str], database: str | None
) -> list[UnrecordedSpool]:
    """Restore all or the named spools, optionally for another database, and return them.

    Raises ValueError for an unknown name or a spool without a readable manifest.
    """
    waiting = list_unrecorded(environment)
    chosen = [
        spool
        for spool in waiting
        if not names or any(spool.name.startswith(name) for name in names)
    ]
    if unknown := [
        name for name in names if not any(spool.name.startswith(name) for spool in waiting)
    ]:
        known = ", ".join(spool.name for spool in waiting) or "nothing"
        raise ValueError(f"no run {unknown[0]!r} waits or was set aside; there is: {known}")
    root = spool_root(environment)
    root.mkdir(parents=True, mode=0o700, exist_ok=True)
    for spool in chosen:
        if database is not None:
            replace(
                read_manifest(spool.folder), database=os.path.abspath(database), server=""
            ).write(spool.folder)
        (spool.folder / REASON).unlink(missing_ok=True)
        if spool.state == "set aside":
            spool.folder.rename(_free(root / spool.folder.name))
    return chosen
