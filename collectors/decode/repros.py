"""A graph that the hooks captured, to the fields of its event."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from compileboard.collectors.contract.repros import MOST_PROGRAM_CHARS, load_manifest
from compileboard.collectors.decode.paths import PathNamer

_OWN = ("position", "failure_position", "candidate")


def parse_repro(metadata: Mapping[str, Any], payload: Mapping[str, Any], namer: PathNamer) -> dict[str, Any]:
    """Read a repro's record into a ReproCaptured event's fields.

    Raises: ValueError if its manifest is none, or a program is no text or too long.
    """
    manifest = metadata.get("manifest")
    file = load_manifest(manifest if isinstance(manifest, dict) else {}).file
    if file and os.path.isabs(file):
        manifest = {**(manifest or {}), "file": namer.name(file)}
    programs = {name: payload[name] for name in ("program", "dynamo_program") if payload.get(name) is not None}
    for name, text in programs.items():
        if not isinstance(text, str) or len(text) > MOST_PROGRAM_CHARS:
            raise ValueError(f"{name} is no text of at most {MOST_PROGRAM_CHARS:,} characters")
    return {**{name: metadata[name] for name in _OWN if name in metadata}, **programs, "manifest": manifest}
