"""From an address of the dashboard to a file's name in a static copy, and from one file to another.

A name is the same in every export, is a name on every file system, and no two addresses share one, upper and lower case
alike: what is not plainly such a name becomes a readable beginning and a hash of all of it. Addresses hold other
people's text: names of models, of suites, of branches.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from urllib.parse import parse_qsl, quote, unquote, urlencode

PAGE = "index.html"
# Folders and files beside the pages; no page has a name that begins with one.
BESIDE = frozenset(("static", "data"))
_PLAIN = re.compile(r"[a-z0-9](?:[a-z0-9_.-]{0,58}[a-z0-9_-])?")
_RUN_ID = re.compile(r"[0-9A-Z]{26}")  # a ULID stays readable; the same in small letters does not
_SMALL_RUN_ID = re.compile(r"[0-9a-z]{26}")
# Names that Windows gives to devices, with any ending.
_DEVICES = frozenset(("con", "prn", "aux", "nul", *(f"{it}{n}" for it in ("com", "lpt") for n in range(10))))
_MOST_CHARACTERS = 180  # of a whole name: Windows ends at 260 with the folder above
_HASH = 16


def normalize(address: str) -> str:
    """Write an address so that two that mean the same are the same; the part behind # goes."""
    # Not urlsplit: to it a name behind a second slash is a host, and one with a bracket an error.
    path, _mark, asked = address.partition("#")[0].partition("?")
    path = "/" + quote(unquote(path), safe="/:@!$&'()*+,;=~-._").lstrip("/")
    query = urlencode(sorted(parse_qsl(asked, keep_blank_values=True), key=lambda it: it[0]))
    return f"{path}?{query}" if query else path


def name_file(address: str) -> str:
    """Name the file of a normalised address, relative to the site's folder."""
    path, _mark, query = address.partition("?")
    segments = [unquote(it) for it in path.split("/")[1:]] if path != "/" else []
    names = [_name(it, first=place == 0) for place, it in enumerate(segments)]
    if query:
        names.append(_shorten("?", "-".join(value for pair in parse_qsl(query) for value in pair), query))
    name = "/".join((*names, PAGE))
    if len(name) > _MOST_CHARACTERS:
        kind = names[0] if len(names[0]) < 40 else "long"
        name = "/".join((kind, _shorten("//", segments[-1], address), PAGE))
    return name


def relate(source: str, target: str) -> str:
    """Write the address of a file as a page in `source` links to it."""
    return quote(posixpath.relpath(target, posixpath.dirname(source) or "."), safe="/~=+,@")


def _name(segment: str, *, first: bool) -> str:
    if _RUN_ID.fullmatch(segment):
        return segment
    plain = _PLAIN.fullmatch(segment) and not _SMALL_RUN_ID.fullmatch(segment)
    if plain and segment != PAGE and segment.partition(".")[0] not in _DEVICES and not (first and segment in BESIDE):
        return segment
    return _shorten("/", segment, segment)


def _shorten(kind: str, shown: str, whole: str) -> str:
    """Make a name of a readable part and a hash; `kind` keeps what is hashed for different reasons apart."""
    readable = re.sub(r"[^a-z0-9]+", "-", shown.lower()[:200]).strip("-")[:40].strip("-") or "x"
    digest = hashlib.sha256(f"{kind}{whole}".encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{readable}~{digest}"
