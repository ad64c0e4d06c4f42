"""The objects of a JSON text in any of the shapes that benchmark results come in: one, an array, or one a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from compileboard.collectors.read.rejects import Rejects

_BETWEEN = re.compile(r"[\s,\[\]\ufeff]*")
_DECODER = json.JSONDecoder()


def read_objects(text: str, rejects: Rejects) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each object and the line that it begins at.

    Arrays are opened wherever they stand. What is no object costs the rest of its line; a last one that is cut is
    counted as such, because a longer copy of the file completes it.
    """
    at, line, counted = 0, 1, 0
    while True:
        found = _BETWEEN.match(text, at)
        at = found.end() if found else at
        if at >= len(text):
            return
        line += text.count("\n", counted, at)
        counted = at
        try:
            value, end = _DECODER.raw_decode(text, at)
        except ValueError:
            value, end = None, at
        except RecursionError:  # nobody's results are that deep, and each deeper line would be tried again
            rejects.add("bad_json", line, text[at : at + 200])
            return
        if isinstance(value, dict):
            yield line, value
            at = end
            continue
        stop = text.find("\n", at)
        kind = "truncated" if stop < 0 and value is None and text[at] == "{" else "bad_json"
        rejects.add(kind, line, text[at : at + 200])
        if stop < 0:
            return
        at = stop
