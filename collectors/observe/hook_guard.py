from __future__ import annotations

from collections import Counter
from inspect import CO_VARARGS
from itertools import pairwise
from types import FrameType, TracebackType


class HookGuard:
    """Context manager that suppresses and counts exceptions of our code.

    KeyboardInterrupt, SystemExit and exceptions of the program's signal handlers are not
    suppressed.
    """

    def __init__(self, losses: Counter[str]) -> None:
        self.losses = losses

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if kind is None or not issubclass(kind, Exception) or _is_of_signal(trace):
            return False
        try:
            reason = f"hook: {kind.__name__}: {error}"[:200]
        except Exception:  # an exception that cannot be printed
            reason = f"hook: {kind.__name__}"
        self.losses[reason] += 1
        return True


def _is_of_signal(trace: TracebackType | None) -> bool:
    """Return whether an exception was raised by a signal handler.

    Python calls a handler with the signal's number and the interrupted frame, which precedes the
    handler in the traceback.
    """
    while trace is not None and trace.tb_next is not None:
        interrupted, called = trace.tb_frame, trace.tb_next.tb_frame
        arguments = _list_arguments(called)
        if any(b is interrupted and isinstance(a, int) for a, b in pairwise(arguments)):
            return True
        trace = trace.tb_next
    return False


def _list_arguments(frame: FrameType) -> list[object]:
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[: code.co_argcount]
    arguments = [values.get(name) for name in names]
    if code.co_flags & CO_VARARGS:
        arguments += values.get(code.co_varnames[count]) or ()
    return arguments
