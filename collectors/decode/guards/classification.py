"""The classification of one guard expression."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GuardClassification:
    category: str
    source: str | None = None
    expected: str | None = None
    actual: str | None = None
    dim: int | None = None
    symbol: str | None = (
        None  # what else tells causes apart: the dimension, the key, the global setting
    )
    variable: str | None = None  # the closure's variable behind a cell
