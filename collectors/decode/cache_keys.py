"""What went into the key of a cache look-up: torch's own list of components, each with its hash.

Source: FxGraphCachePickler.debug_lines in torch/_inductor/codecache.py, AOTAutogradCacheDetails; 2.5 to 2.13.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_COMPONENT = re.compile(r"\[(?P<digest>[a-z0-9]{1,128})\] (?P<name>\w+(?:\[[^\]\n]*\])?): ?", re.ASCII)
_LINE = re.compile(r"^(?=\[[a-z0-9]{20,128}\] \w+(?:\[[^\]\n]*\])?: ?)", re.ASCII | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Component:
    """Hold one component of a cache key: torch's hash of it decides, its text is for people.

    Where torch gave no hash, `digest` is empty and the text decides.
    """

    name: str
    digest: str
    value: str

    @property
    def identity(self) -> str:
        """Return what must be equal for two components of one name to be the same."""
        return self.digest or self.value


def parse_components(payload: Any) -> list[Component] | None:
    """Read the components of a look-up's payload; None where it has none or is not one.

    A bypass, and in torch 2.13 AOTAutograd's cache, has an empty list.
    """
    if isinstance(payload, str):
        try:
            payload = json.loads(payload)
        except (ValueError, RecursionError):
            return None
    if not isinstance(payload, dict):
        return None
    for name in ("components", "lines"):
        said = payload.get(name)
        if isinstance(said, str):
            said = [line.rstrip("\n") for line in _LINE.split(said) if line.strip()]
        if isinstance(said, list):
            return read_components(said)
    return None


def read_components(lines: Iterable[Any]) -> list[Component]:
    """Read "[hash] name: value" texts; one of another form keeps its text under the name it begins with."""
    found = []
    for line in lines:
        if not isinstance(line, str) or not line.strip():
            continue
        head = _COMPONENT.match(line)
        if head is None:
            name, _, value = line.partition(": ")
            found.append(Component(name[:200], "", value))
            continue
        # Nine of ten components are the same in every look-up of a process.
        name, digest = sys.intern(head["name"]), sys.intern(head["digest"])
        value = line[head.end() :]
        found.append(Component(name, digest, sys.intern(value) if len(value) < 40 else value))
    return found
