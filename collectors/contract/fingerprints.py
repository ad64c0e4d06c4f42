"""Content hashes and fingerprints, shared by live hooks and log readers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from functools import lru_cache

ULID_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID = re.compile(f"[0-7][{ULID_ALPHABET}]{{25}}", re.IGNORECASE)
ID_TEXT = re.compile("[0-7][0-9a-f]{15}")
WITHHELD = re.compile(r"<source withheld ([0-9a-f]{12})>")


def normalize_run_id(text: str) -> str:
    """Return a run id with the letters of a ULID in capitals, as in every database."""
    return text.upper() if _ULID.fullmatch(text) else text


def config_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def source_hash(line: str | None) -> str | None:
    """Hash a source line without its indentation; a withheld line returns the hash it contains."""
    if line is None or not line.strip():
        return None
    withheld = WITHHELD.search(line)
    if withheld:
        return withheld.group(1)
    return hashlib.sha256(line.strip().encode("utf-8", "surrogatepass")).hexdigest()[:12]


def fingerprint(*parts: str | None) -> str:
    body = "\x1e".join("\x00" if part is None else part for part in parts)
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@lru_cache(
    maxsize=10_000, typed=True
)  # a suite's series come with each of its runs, and causes with each batch
def content_digest(*parts: str | int | None) -> str:
    """Hash an identity's parts. None, "" and 0 have different digests, and so do different
    boundaries between parts.
    """
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()


def cause_fingerprint(guard_fingerprint: str, file: str | None, function: str | None) -> str:
    """Return a fingerprint for a function's recompiles by a guard. It is the same in every
    database.
    """
    return content_digest("cause", guard_fingerprint, file, function)[:32]


def join_fingerprints(fingerprints: Iterable[str]) -> str:
    """Return the fingerprint of guards that failed together. For a single guard it is the guard's
    own.
    """
    first, *more = sorted(set(fingerprints))
    return fingerprint("together", first, *more) if more else first


def content_id(*parts: str | int | None) -> int:
    """Return an ID that is equal in every database: the first 63 bits of the digest, as an SQLite
    integer.
    """
    return int(content_digest(*parts)[:16], 16) >> 1


def format_id(value: int) -> str:
    """Format an ID for addresses and JSON as text, since it exceeds 2^53."""
    return f"{value:016x}"


def parse_id(text: str) -> int:
    if not ID_TEXT.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not an id: expected 16 digits of 0-9 and a-f")
    return int(text, 16)
