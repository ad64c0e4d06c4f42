"""Decode lookups in the FX graph cache and AOTAutograd's cache, and the components of their
keys.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from compileboard.collectors.contract.record_names import CACHE_ARTIFACTS


def parse_lookup(name: str, payload: Any) -> dict[str, Any] | None:
    """Parse a lookup into the fields of CacheLookedUp, None if it is not one.

    Only the number of `components`, which can be 86 KB, is kept.
    """
    payload = _load_object(payload) if name in CACHE_ARTIFACTS else None
    if payload is None:
        return None
    cache, result = CACHE_ARTIFACTS[name]
    if result is None:
        state = payload.get("cache_state")
        result = state if state in ("hit", "miss", "bypass") else None
    if result is None:
        return None
    detail = {key: value for key, value in payload.items() if key not in ("components", "lines")}
    for huge in ("components", "lines"):
        if isinstance(payload.get(huge), list):
            detail["component_count"] = len(payload[huge])
    if name == "fx_graph_bundled_cache_hit":
        detail["bundled"] = True
    return {
        "cache": cache,
        "result": result,
        "key": _as_text(payload.get("key")),
        "reason": _find_reason(payload, result),
        "time_taken_us": _to_microseconds(payload.get("time_taken_ns"), 1e-3),
        "time_saved_us": _to_microseconds(payload.get("time_saved_ns"), 1e-3)
        or _to_microseconds(payload.get("time_saved_ms"), 1e3),
        "detail": detail,
    }


def _load_object(payload: Any) -> dict[str, Any] | None:
    if isinstance(payload, str):
        try:
            payload = json.loads(payload)
        except (ValueError, RecursionError):
            return None
    return payload if isinstance(payload, dict) else None


def _find_reason(payload: dict[str, Any], result: str) -> str | None:
    for key in ("cache_bypass_reason", "cache_bypass_exception_type"):
        if payload.get(key):
            return _as_text(payload[key])
    # A miss has a kind: full_miss, guard_miss, …
    return _as_text(payload.get("cache_status_detailed")) if result != "hit" else None


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _to_microseconds(value: Any, factor: float) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        return None
    return round(value * factor)


_COMPONENT = re.compile(
    r"\[(?P<digest>[a-z0-9]{1,128})\] (?P<name>\w+(?:\[[^\]\n]*\])?): ?", re.ASCII
)
_LINE = re.compile(r"^(?=\[[a-z0-9]{20,128}\] \w+(?:\[[^\]\n]*\])?: ?)", re.ASCII | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Component:
    name: str
    digest: str
    value: str

    @property
    def identity(self) -> str:
        return self.digest or self.value


def parse_components(payload: Any) -> list[Component] | None:
    """Parse the components of a lookup; None if it has none. A bypass, and torch 2.13's AOTAutograd
    cache, has an empty list.
    """
    payload = _load_object(payload)
    if payload is None:
        return None
    for name in ("components", "lines"):
        lines = payload.get(name)
        if isinstance(lines, str):
            lines = [line.rstrip("\n") for line in _LINE.split(lines) if line.strip()]
        if isinstance(lines, list):
            return read_components(lines)
    return None


def read_components(lines: Iterable[Any]) -> list[Component]:
    """Parse "[hash] name: value" texts; others keep their text under the name they begin with."""
    components = []
    for line in lines:
        if not isinstance(line, str) or not line.strip():
            continue
        head = _COMPONENT.match(line)
        if head is None:
            name, _, value = line.partition(": ")
            components.append(Component(name[:200], "", value))
            continue
        # Nine of ten components are the same in every lookup of a process.
        name, digest = sys.intern(head["name"]), sys.intern(head["digest"])
        value = line[head.end() :]
        components.append(Component(name, digest, sys.intern(value) if len(value) < 40 else value))
    return components
