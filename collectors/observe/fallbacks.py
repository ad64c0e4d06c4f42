"""Emulate events that torch 2.4 and 2.5 lack (docs/compatibility.md).

These versions have no graph-break event, and 2.4 has no recompile event. They keep a list of graph
breaks that grows until reset(); new entries are written as the events of a newer torch. Breaks of
frames that were skipped entirely never get into it. Recompiles are written where torch collects
their reasons (failed_guards.py). These versions also lack an event for a compile that raises, and a
record for one that reaches the recompile limit.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from types import CodeType
from typing import Any

from ..contract.record_names import COMPILE_ERROR, GRAPH_BREAK
from . import torch_compat

BREAK_EVENT_SINCE = ERROR_EVENT_SINCE = LIMIT_RECORD_SINCE = (2, 6)
RECOMPILE_EVENT_SINCE = (2, 5)


def torch_release() -> tuple[int, ...]:
    return torch_compat.release_of(torch_compat.loaded_version())


class ListReader:
    def __init__(self, release: tuple[int, ...]) -> None:
        self.reads_breaks = release < BREAK_EVENT_SINCE
        self.logs_recompiles = release >= RECOMPILE_EVENT_SINCE
        self.reads_errors = release < ERROR_EVENT_SINCE
        self.reads_limits = release < LIMIT_RECORD_SINCE
        self._last_reason: Any = None

    def read(self, emit: Callable[[str, Any, Any, Any], None], context: Any) -> None:
        if self.reads_breaks:
            reasons = torch_compat.break_list()
            # The last one read tells where to go on; after reset() it is gone and the list is new.
            read = next(
                (i + 1 for i, reason in enumerate(reasons) if reason is self._last_reason), 0
            )
            for reason in reasons[read:]:
                emit(GRAPH_BREAK, None, break_text(reason), context)
            self._last_reason = reasons[-1] if reasons else None

    def read_error(self, emit: Callable[[str, Any, Any, Any], None], context: Any) -> None:
        """Write the exception of a failed compile. torch writes the record while the exception
        propagates.
        """
        error = sys.exc_info()[1]
        if self.reads_errors and error is not None:
            emit(COMPILE_ERROR, None, "".join(traceback.format_exception(error)), context)


def limit_record(code: CodeType, compile_id: str, limit: str) -> dict[str, Any]:
    """Return the record of a compile that reaches a limit, as torch 2.6 writes it."""
    return {
        "compile_id": compile_id,
        "co_name": code.co_name,
        "co_filename": code.co_filename,
        "co_firstlineno": code.co_firstlineno,
        "fail_type": "CacheLimitExceeded",
        "fail_reason": f"{limit} reached",
    }


def break_text(reason: Any) -> str:
    stack = list(getattr(reason, "user_stack", None) or [])
    where = f"{stack[-1].filename}:{stack[-1].lineno}" if stack else "an unknown line"
    formatted = "".join(traceback.format_list(stack))
    return (
        f"Graph break in user code at {where}\nReason: {getattr(reason, 'reason', reason)}\n"
        f"User code traceback:\n{formatted}"
    )
