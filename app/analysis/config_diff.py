"""Which settings differ: from torch's defaults, and between the processes of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Change:
    """Hold one setting that differs from torch's default in some processes; values are text."""

    module: str
    name: str
    value: str
    default: str
    process_count: int


@dataclass(frozen=True)
class Difference:
    """Hold one setting that has several values among the texts of one kind: (value, hash) each."""

    name: str
    values: tuple[tuple[str, str], ...]


def show_value(value: Any) -> str:
    """Write a setting's value as Python's users know it."""
    if value is None or isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, sort_keys=True)


def list_changes(changed: Sequence[tuple[str, Mapping[str, Mapping[str, Any]]]]) -> list[Change]:
    """List each setting that differs from its default, with how many processes had it so."""
    found: dict[tuple[str, str, str, str], set[str]] = {}
    for process_id, modules in changed:
        for module, settings in modules.items():
            for name, pair in settings.items() if isinstance(settings, Mapping) else ():
                pair = pair if isinstance(pair, Mapping) else {"value": pair}
                key = (module, name, show_value(pair.get("value")), show_value(pair.get("default")))
                found.setdefault(key, set()).add(process_id)
    return [Change(*key, process_count=len(processes)) for key, processes in sorted(found.items())]


def compare_texts(texts: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Difference]:
    """List the settings whose values are not the same in all of the given (hash, settings)."""
    names = sorted({name for _hash, values in texts for name in values})
    found = []
    for name in names:
        seen = [(show_value(values[name]) if name in values else "not there", digest) for digest, values in texts]
        if len({value for value, _digest in seen}) > 1:
            found.append(Difference(name, tuple(seen)))
    return found
