"""What a spool folder says about itself, so that any later command can record it: where to, and what run it is."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

NAME = "run.json"


@dataclass
class Manifest:
    """Say which run a spool belongs to and which database it is for."""

    run_id: str
    database: str
    name: str
    started_us: int
    suite: str | None = None
    source: str = "live"  # live | bench
    tags: dict[str, str] = field(default_factory=dict)
    level: str = "light"
    keep_source: bool = True
    argv: list[str] = field(default_factory=list)
    cwd: str | None = None
    recorder_process_id: str = ""
    trace_folder: str | None = None  # where torch writes its own logs: with --level full, or by the user's TORCH_TRACE
    git: dict[str, Any] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    gpus: list[dict[str, Any]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    ended_us: int | None = None
    state: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    stack_room: bool | None = None
    late: bool = False  # made by a process that outlived its spool: its run is described and ended elsewhere

    def write(self, folder: Path) -> None:
        """Write the manifest so that a reader sees the old one or the new one, never half."""
        temporary = folder / f".{NAME}.{os.getpid()}"
        temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")
        os.replace(temporary, folder / NAME)


def read_manifest(folder: Path) -> Manifest:
    """Read a spool folder's manifest.

    Raises: ValueError if there is none or it is damaged.
    """
    try:
        body = json.loads((folder / NAME).read_text(encoding="utf-8"))
        return Manifest(**body)
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{folder / NAME} does not describe a run: {error}") from None
