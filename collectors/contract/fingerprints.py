"""Content hashes and fingerprints, shared by the live hook and the log reader."""

from __future__ import annotations

import hashlib
import re

WITHHELD = re.compile(r"<source withheld ([0-9a-f]{12})>")

# What differs from call to call in a reason, most specific first; each becomes a placeholder of its own.
_VALUES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"0x[0-9a-fA-F]+"), "<address>"),
    (re.compile(r"<source withheld [0-9a-f]{12}>"), "<source>"),
    (re.compile(r"<(?:class|function|module|method|built-in [a-z]+|bound method)\b[^<>]*>"), "<object>"),
    (re.compile(r"\b[A-Za-z_]\w*Variable\([^()]*(?:\([^()]*\)[^()]*)*\)"), "<variable>"),
    (re.compile(r"torch\.Size\(\[[^\]]*\]\)"), "<shape>"),
    (re.compile(r"\"(?:[^\"\\\n]|\\.)*\""), "<string>"),
    (re.compile(r"(?<!\w)'(?:[^'\\\n]|\\.)*'"), "<string>"),
    (re.compile(r"\bid\s*=\s*\d+"), "id=<number>"),
    (re.compile(r"[\[(]\s*-?\d+(?:\s*,\s*-?\d+)*\s*,?\s*[\])]"), "<shape>"),
    (re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\w)"), "<number>"),
)


def config_hash(text: str) -> str:
    """Name a configuration text by its content."""
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


def normalise_values(text: str) -> str:
    """Replace numbers, addresses, quoted strings, shapes and object reprs, so that what stays is the same each time."""
    text = text[:10_000]  # a reason that long differs in its beginning
    for pattern, placeholder in _VALUES:
        text = pattern.sub(placeholder, text)
    return " ".join(text.split())
