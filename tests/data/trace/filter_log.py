"""Make a recording small and free of its machine: events only, other paths, new hashes.

python tests/data/trace/filter_log.py SOURCE.log TARGET.log.xz [OLD=NEW …] [+NAME …]

+NAME keeps records of that name too, where a test needs more than events.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import sys
from pathlib import Path
from typing import Any

from compileboard.collectors.decode.records import is_event


def records(path: Path) -> list[tuple[str, str | None]]:
    """Split a log into (line, payload)."""
    pairs: list[tuple[str, list[str]]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        if line.startswith("\t") and pairs:
            pairs[-1][1].append(line[1:])
        elif "] {" in line:
            pairs.append((line, []))
    return [(line, "\n".join(payload) if payload else None) for line, payload in pairs]


def shorten(value: Any) -> Any:
    """Shorten the text of a cache key's components, but not their number."""
    if isinstance(value, dict) and isinstance(value.get("components"), list):
        return {**value, "components": [str(component)[:24] for component in value["components"]]}
    return value


def rewrite(line: str, payload: str | None, more: frozenset[str] = frozenset()) -> str | None:
    """Write a record again, or None for what nobody keeps."""
    prefix, _, body = line.partition("] {")
    header = json.loads("{" + body)
    name = next(iter(header))
    name = f"artifact:{header['artifact']['name']}" if name == "artifact" else name
    if name != "str" and name not in more and not is_event(name):
        return None
    lines = []
    if payload is not None:
        if "cache_" in name and payload.startswith("{"):
            payload = json.dumps(shorten(json.loads(payload)))
        if "has_payload" in header:
            header["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
        lines = [f"\t{item}" for item in payload.split("\n")]
    return "\n".join([f"{prefix}] {json.dumps(header)}", *lines, ""])


def main(source: str, target: str, *changes: str) -> None:
    """Filter one log."""
    out = []
    more = frozenset(change[1:] for change in changes if change.startswith("+"))
    for line, payload in records(Path(source)):
        for change in (change for change in changes if not change.startswith("+")):
            old, _, new = change.partition("=")
            line, payload = (
                line.replace(old, new),
                payload.replace(old, new) if payload is not None else None,
            )
        written = rewrite(line, payload, more)
        if written is not None:
            out.append(written)
    Path(target).write_bytes(lzma.compress("".join(out).encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{target}: {len(out)} records, {Path(target).stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
