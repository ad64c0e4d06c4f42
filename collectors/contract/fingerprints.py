"""Content hashes and fingerprints, shared by the live hook and the log reader."""

from __future__ import annotations

import hashlib
import re

WITHHELD = re.compile(r"<source withheld ([0-9a-f]{12})>")


def config_hash(text: str) -> str:
    """Return the content hash that names a configuration text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def source_hash(line: str | None) -> str | None:
    """Hash a source line without its indentation; a withheld line gives the hash it carries."""
    if line is None or not line.strip():
        return None
    withheld = WITHHELD.search(line)
    if withheld:
        return withheld.group(1)
    return hashlib.sha256(line.strip().encode("utf-8", "surrogatepass")).hexdigest()[:12]


def fingerprint(*parts: str | None) -> str:
    """Hash an identity's parts; None and "" differ."""
    body = "\x1e".join("\x00" if part is None else part for part in parts)
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:32]
