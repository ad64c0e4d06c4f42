"""torch's reprs, "TensorMetadata(dtype=torch.float32, shape=torch.Size([8]))", split into fields
and compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

_TOKEN = re.compile(
    r"'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\"|[(\[{]|[)\]}]|, ", re.DOTALL
)
_FIELD = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_CALL = re.compile(r"([A-Za-z_][\w.]*)\((.*)\)\s*\Z", re.DOTALL | re.ASCII)


@dataclass(frozen=True)
class FieldChange:
    """A field that differs."""

    name: Annotated[str, "Its name."]
    before: Annotated[str | None, "Value before; null where it was not there."]
    after: Annotated[str | None, "Value after; null where it is not there."]


def split_arguments(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for token in _TOKEN.finditer(text):
        what = token[0]
        if what in "([{":
            depth += 1
        elif what in ")]}":
            depth = max(depth - 1, 0)
        elif what == ", " and not depth:
            parts.append(text[start : token.start()])
            start = token.end()
    return [part for part in (*parts, text[start:]) if part.strip()]


def read_fields(text: str) -> dict[str, str] | None:
    call = _CALL.match(text)
    if call is None:
        return None
    fields = {}
    for part in split_arguments(call[2]):
        named = _FIELD.match(part)
        if named is None:
            return None
        fields[named[1]] = part[named.end() :]
    return fields


def compare_fields(before: dict[str, str], after: dict[str, str]) -> tuple[FieldChange, ...]:
    names = list(dict.fromkeys((*before, *after)))
    return tuple(
        FieldChange(name, before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    )
