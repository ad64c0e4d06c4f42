"""The benchmark harness. `model` marks a function to be measured; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
MARK = "__compileboard_model__"


@dataclass(frozen=True)
class MarkedModel:
    name: str
    batch_size: int
    trains: bool


def model(
    function: F | None = None, *, name: str | None = None, batch_size: int = 8, trains: bool = True
) -> Any:
    """Mark a function that takes a batch size and returns a module and its example inputs.

    Use it as `@model` or `@model(name="Mine", batch_size=4)`. The function may also return a
    `compileboard.collectors.bench.loaded.Loaded`, which can add a loss or other shapes.

    >>> from compileboard import bench
    >>> @bench.model(name="Doubled", batch_size=4)
    ... def build(batch_size):
    ...     return abs, (batch_size,)
    >>> build(2)
    (<built-in function abs>, (2,))

    Raises ValueError for a name that `--only path:FILE,model:NAME` could not distinguish from its
    path.
    """
    if name is not None and (not name.isprintable() or not name.strip() or set(name) & set("/:,")):
        raise ValueError(
            f"@model(name={name!r}): a name has no slash, colon or comma, as --only could not "
            "tell it apart"
        )

    def mark(function: F) -> F:
        setattr(function, MARK, MarkedModel(name or function.__name__, batch_size, trains))
        return function

    return mark if function is None else mark(function)
