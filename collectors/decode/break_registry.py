"""Torch's registry of graph break types, for runs whose torch had none.

Source: torch/_dynamo/graph_break_registry.json of torch 2.13, written by
benchmarks/package_data/break_registry.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_TABLE = Path(__file__).with_name("break_registry.json")
_SITE = "https://meta-pytorch.github.io/compile-graph-break-site/gb"


@dataclass(frozen=True)
class RegistryEntry:
    gb_id: str
    gb_type: str
    explanation: str
    hints: tuple[str, ...]


@lru_cache(maxsize=1)
def _entries() -> dict[str, RegistryEntry]:
    table = json.loads(_TABLE.read_text(encoding="utf-8"))
    hints = table["hints"]
    return {
        gb_id: RegistryEntry(gb_id, gb_type, explanation, tuple(hints[i] for i in hint_indices))
        for gb_id, gb_type, explanation, hint_indices in table["breaks"]
    }


@lru_cache(maxsize=1)
def _types() -> dict[str, tuple[str, ...]]:
    ids: dict[str, list[str]] = {}
    table = json.loads(_TABLE.read_text(encoding="utf-8"))
    for gb_id, gb_type, _, _ in table["breaks"]:
        ids.setdefault(gb_type, []).append(gb_id)
    for gb_type, gb_ids in table["older_types"].items():
        ids.setdefault(gb_type, []).extend(gb_ids)
    return {gb_type: tuple(sorted(set(gb_ids))) for gb_type, gb_ids in ids.items()}


# What the tables of the torches in use have besides: ids and types of a torch newer than the table
# above.
_learnt: dict[str, RegistryEntry] = {}


@lru_cache(maxsize=8)
def learn(path: str) -> None:
    try:
        if not Path(path).is_file():  # to read a pipe is to wait
            return
        table = json.loads(Path(path).read_text(encoding="utf-8"))
        for gb_id, variants in table.items():
            if gb_id not in _entries():
                newest = variants[0]
                hints = tuple(str(hint) for hint in newest.get("Hints", ()))
                _learnt[gb_id] = RegistryEntry(
                    gb_id, str(newest["Gb_type"]), str(newest.get("Explanation", "")), hints
                )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return


def lookup(gb_id: str) -> RegistryEntry | None:
    return _entries().get(gb_id.upper()) or _learnt.get(gb_id.upper())


def ids_of_type(gb_type: str) -> tuple[str, ...]:
    known = _types().get(gb_type, ())
    return known or tuple(
        sorted(entry.gb_id for entry in _learnt.values() if entry.gb_type == gb_type)
    )


def page_url(gb_id: str) -> str:
    return f"{_SITE}/{gb_id.lower()}.html"
