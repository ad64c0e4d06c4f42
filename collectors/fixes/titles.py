"""Short titles of graph breaks and recompiles: what happens, in the names of the user's program."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from compileboard.collectors.contract.categories import label_category

MOST_VALUES = 4
_LONGEST_SOURCE = 60
_LEFT_BY_BREAK = re.compile(r"\b___stack\d+")
_STATES = {
    "grad_mode": "Grad mode changes between calls",
    "autocast": "Autocast changes between calls",
    "deterministic": "Deterministic algorithms change between calls",
    "backend_mismatch": "The backend callable changes between calls",
}


def title_recompile(
    category: str,
    source: str | None,
    siblings: Sequence[str] = (),
    dim: int | None = None,
    values: Sequence[str] = (),
    after_break: bool = False,
) -> str:
    """Return the short title of a recompile cause; a name in code after a graph break is not the user's."""
    if category in _STATES:
        return _STATES[category]
    names = ", ".join(_shorten(name) for name in (source, *siblings) if name)
    label = label_category(category).label
    changes = _describe_values(values)
    if after_break or _LEFT_BY_BREAK.search(source or ""):
        return f"{'Size' if category == 'tensor_size' else label} after a graph break changes{changes}"
    if category == "tensor_size" and names:
        subject = f"Dimension {dim} of {names}" if dim is not None else f"Size of {names}"
        return f"{subject} changes{changes}"
    if category in ("int_value", "float_value", "string_value", "other_value", "module_attribute", "global_value"):
        return f"{names or 'A value'} changes{changes}"
    return f"{label} of {names} changes{changes}" if names else f"{label} changes{changes}"


def _describe_values(values: Sequence[str]) -> str:
    if not values:
        return ""
    shown = [_shorten(value) for value in values[:MOST_VALUES]]
    if len(values) == 1:
        return f" from {shown[0]}"
    more = f" → … ({len(values)} values)" if len(values) > MOST_VALUES else ""
    return f": {' → '.join(shown)}{more}"


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_SOURCE else text[: _LONGEST_SOURCE - 1] + "…"


class HasSavings(Protocol):
    """What a sentence about savings needs of a cause."""

    @property
    def saved_us(self) -> int | None: ...

    @property
    def is_fixable(self) -> bool: ...

    @property
    def is_expected(self) -> bool: ...


def describe_savings(
    causes: Sequence[HasSavings], compile_us: int | None, format_duration: Callable[[float | None], str]
) -> str:
    """Return in one sentence what the fixes of a run would save: 4 fixes save up to 3.09 s of 5.87 s compile time."""
    fixable = [cause for cause in causes if cause.is_fixable]
    saved_us = sum(cause.saved_us or 0 for cause in fixable or causes)
    whole = f"of {format_duration(compile_us)} compile time" if compile_us else "of compile time"
    if fixable:
        subject = "1 fix" if len(fixable) == 1 else f"{len(fixable)} fixes"
        verb = "saves" if len(fixable) == 1 else "save"
        if not saved_us:
            return f"{subject} known, saved compile time not recorded"
        return f"{subject} {verb} up to {format_duration(saved_us)} {whole}"
    if all(cause.is_expected for cause in causes):
        return f"Nothing to fix: {'1 cause is' if len(causes) == 1 else f'{len(causes)} causes are'} as expected"
    subject = "1 cause" if len(causes) == 1 else f"{len(causes)} causes"
    verb = "costs" if len(causes) == 1 else "cost"
    cost = f"{verb} up to {format_duration(saved_us)} {whole}, " if saved_us else "of graph breaks or recompiles, "
    return f"{subject} {cost}no fix is known"
