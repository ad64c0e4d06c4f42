"""Keep every hook harmless: an error in one is a counted loss, never the program's."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Guard:
    """Run our own code so that its exceptions are counted and go no further.

    KeyboardInterrupt and SystemExit pass: they are the program's.
    """

    def __init__(self, losses: Counter[str]) -> None:
        self.losses = losses

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        try:
            reason = f"hook: {kind.__name__}: {error}"[:200]
        except Exception:  # an exception that cannot be printed
            reason = f"hook: {kind.__name__}"
        self.losses[reason] += 1
        return True

    def wrap(self, function: Callable[..., T]) -> Callable[..., T | None]:
        """Return the function with its errors counted instead of raised."""

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> T | None:
            with self:
                return function(*args, **kwargs)
            return None

        return guarded
