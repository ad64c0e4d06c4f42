"""Where CompileBoard keeps its own files: spools that wait to be recorded."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

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
