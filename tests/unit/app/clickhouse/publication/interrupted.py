"""A publisher that ends right after one of its steps, as a killed process does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compileboard.collectors.store import published_runs


class Killed(BaseException):
    """The process ends here."""


class Interrupted:
    """A client, and the board's part of publication, that end right after one of their steps."""

    STEPS = ("begin_attempt", "save_published", "forget_published", "publish_all_again")

    def __init__(self, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: float = float("inf")
        self.client = client
        self._patch = monkeypatch
        for name in self.STEPS:
            monkeypatch.setattr(published_runs, name, self._count(getattr(published_runs, name)))

    def _count(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            result = step(*args, **kwargs)
            self.left -= 1
            if self.left == 0:
                raise Killed
            return result

        return counted

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)
        return self._count(method) if name in ("insert", "command") else method
