"""Sides for tests of comparisons."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from compileboard.app.comparison.model import ComparedSide, ModelResult
from compileboard.app.comparison.queries import DistinctItem
from compileboard.app.core.engine import Engine
from compileboard.app.core.newest import RecorderClock, read_clock

SERIES: dict[str, Any] = {
    "suite": "builtin",
    "mode": "inference",
    "dtype": "float32",
    "device": "cuda",
    "hardware": "NVIDIA H200",
    "backend": "inductor",
    "dynamic": False,
    "batch_size": 8,
    "world_size": 1,
}


def entry(model: str = "mlp", values: dict[str, float] | None = None, **more: Any) -> ModelResult:
    """Make what one side says of a model; series fields go into its series."""
    series = {name: more.pop(name) for name in list(more) if name in SERIES}
    status = more.pop("status", "measured")
    return ModelResult(SERIES | {"model": model} | series, status, values or {}, **more)


def side(
    *entries: ModelResult, breaks: Iterable[DistinctItem] | None = None, **more: Any
) -> ComparedSide:
    """Make a side of some entries."""
    return ComparedSide(
        "A", "run A", entries=entries, breaks=None if breaks is None else tuple(breaks), **more
    )


def repeats(median_ms: float, count: int = 30, noise: float = 0.01, seed: int = 1) -> list[float]:
    """Make repeats that scatter, the same each time."""
    chance = random.Random(seed)
    return [median_ms * chance.lognormvariate(0, noise) for _ in range(count)]


def broke(fingerprint: str, count: int = 1, model: ModelResult | None = None) -> DistinctItem:
    """Make a distinct graph break."""
    key = model.key if model else None
    return distinct(fingerprint, key, f"because of {fingerprint}", count)


def distinct(
    fingerprint: str, model: Any = None, reason: str = "why", count: int = 1, **more: Any
) -> DistinctItem:
    """Make a distinct graph break or recompile cause."""
    unknown = dict.fromkeys(("kind", "function", "file", "line"))
    return DistinctItem(
        fingerprint=fingerprint, model=model, reason=reason, count=count, **(unknown | more)
    )


def now(engine: Engine) -> tuple[Engine, RecorderClock]:
    """Return an engine and this moment."""
    return engine, read_clock()
