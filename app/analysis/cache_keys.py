"""Why a look-up in a compile cache missed: which components of its key differ from the nearest earlier one's."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compileboard.app.analysis.component_words import explain_component, order_component
from compileboard.app.analysis.fields import FieldChange, compare_fields, read_fields
from compileboard.collectors.payloads import Component

__all__ = [
    "ComponentChange",
    "KeyDiff",
    "KeyPrint",
    "compare_keys",
    "explain_component",
    "nearest_earlier",
    "print_key",
]

_UNREADABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffd]")
_SIZE = re.compile(r"^(?:torch\.Size\(\[(.*)\]\)|\((.*)\))$", re.DOTALL)
_NAMED = re.compile(r"^(?P<group>\w+)\[(?P<key>.*)\]$", re.DOTALL)


@dataclass(frozen=True)
class ComponentChange:
    """Hold one component that differs: `summary` says how; a side that lacks it, or cannot be read, has no value."""

    name: str
    summary: str
    explanation: str
    before: str | None
    after: str | None
    fields: tuple[FieldChange, ...] = ()


@dataclass(frozen=True)
class KeyDiff:
    """Hold how the key of a miss differs from an earlier one, what matters most first."""

    changed: tuple[ComponentChange, ...]
    only_in_miss: tuple[ComponentChange, ...]
    only_in_earlier: tuple[ComponentChange, ...]
    same_count: int

    @property
    def count(self) -> int:
        """Return how many components differ."""
        return len(self.changed) + len(self.only_in_miss) + len(self.only_in_earlier)


@dataclass(frozen=True)
class KeyPrint:
    """Hold a key as hashes of its components, 16 bytes each, good within one process of Python."""

    names: array[int]
    pairs: array[int]


def print_key(components: Iterable[Component]) -> KeyPrint:
    """Make the small form of a key that nearest_earlier compares."""
    found = {it.name: it.identity for it in components}
    return KeyPrint(array("q", map(hash, found)), array("q", map(hash, found.items())))


def nearest_earlier(
    miss: Sequence[Component] | KeyPrint, earlier: Iterable[Sequence[Component] | KeyPrint]
) -> int | None:
    """Find the place of the earlier key with the fewest differing components, the latest of equals; None of none.

    `earlier` is in the order of time and is gone through once.
    """
    wanted = miss if isinstance(miss, KeyPrint) else print_key(miss)
    names, pairs = set(wanted.names), set(wanted.pairs)
    best, fewest = None, 0
    for place, entry in enumerate(earlier):
        other = entry if isinstance(entry, KeyPrint) else print_key(entry)
        # A component of both with another hash counts once, one of a single side once: |A| + |B| - names - pairs.
        common = sum(map(names.__contains__, other.names)) + sum(map(pairs.__contains__, other.pairs))
        differing = len(names) + len(other.names) - common
        if best is None or differing <= fewest:
            best, fewest = place, differing
    return best


def compare_keys(miss: Iterable[Component], earlier: Iterable[Component]) -> KeyDiff:
    """List what differs between the key of a miss and an earlier key; `before` is the earlier one's."""
    now, was = _by_name(miss), _by_name(earlier)
    both = [name for name in now if name in was]
    changed = [name for name in both if now[name].identity != was[name].identity]
    return KeyDiff(
        changed=tuple(_describe_change(was[name], now[name]) for name in _in_order(changed)),
        only_in_miss=tuple(_describe_single(now[name], True) for name in _in_order(now.keys() - was.keys())),
        only_in_earlier=tuple(_describe_single(was[name], False) for name in _in_order(was.keys() - now.keys())),
        same_count=len(both) - len(changed),
    )


def _by_name(components: Iterable[Component]) -> dict[str, Component]:
    # Damage may bring a name twice; which one counts must not hang on the order.
    return {it.name: it for it in sorted(components, key=lambda it: (it.name, it.digest, it.value))}


def _in_order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=order_component)


def _describe_change(was: Component, now: Component) -> ComponentChange:
    before, after = _readable(was.value), _readable(now.value)
    fields: tuple[FieldChange, ...] = ()
    if now.name == "gm":
        summary = "the graph differs"
    elif before is None or after is None:
        summary = f"{_label(now.name)} differs; torch records it as bytes"
    elif before == after:
        summary = f"{_label(now.name)} differs in its hash; torch's text for it is the same"
    else:
        old, new = read_fields(before), read_fields(after)
        fields = compare_fields(old, new) if old and new else ()
        said = [f"{it.name} {_show(it.before)} → {_show(it.after)}" for it in fields]
        summary = f"{_label(now.name)}: {', '.join(said) or f'{_shorten(before)} → {_shorten(after)}'}"
    return ComponentChange(now.name, summary, explain_component(now.name), before, after, fields)


def _describe_single(component: Component, is_miss: bool) -> ComponentChange:
    value = _readable(component.value)
    side = "the miss" if is_miss else "the earlier key"
    summary = f"{_label(component.name)}: only in {side}"
    before, after = (None, value) if is_miss else (value, None)
    return ComponentChange(component.name, summary, explain_component(component.name), before, after)


def _label(name: str) -> str:
    found = _NAMED.match(name)
    if found is None:
        return name
    group, key = found["group"], found["key"]
    if group.startswith("inductor_config"):
        module = group.removeprefix("inductor_config").removeprefix("_")
        return f"inductor setting {module}.{key}" if module else f"inductor setting {key}"
    return f"input {key}" if group == "example_inputs" else name


def _readable(value: str) -> str | None:
    return None if _UNREADABLE.search(value) else value


def _show(value: str | None) -> str:
    if value is None:
        return "not there"
    size = _SIZE.match(value)
    return _shorten(f"[{(size[1] or size[2] or '').rstrip(',')}]" if size else value)


def _shorten(text: str, limit: int = 120) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
