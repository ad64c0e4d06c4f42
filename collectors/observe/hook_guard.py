from __future__ import annotations

from collections import Counter


class HookGuard:
    """Context manager that counts exceptions of our code and suppresses them.

    KeyboardInterrupt and SystemExit pass through: they are the program's.
    """

    def __init__(self, losses: Counter[str]) -> None:
        self.losses = losses

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        try:
            reason = f"hook: {kind.__name__}: {error}"[:200]
        except Exception:  # an exception that cannot be printed
            reason = f"hook: {kind.__name__}"
        self.losses[reason] += 1
        return True
