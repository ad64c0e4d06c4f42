"""Record exceptions raised by running compiled code, and the exception that ends the program.

Each compiled callable gets one wrapper frame whose `try` costs nothing unless something is raised
(cost in docs/benchmarks.md). The frame removes itself from the traceback. At exit, the exception
that ended the program is read from the place where Python stores it, so no user hook is replaced.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, TracebackType
from typing import Any

from ..contract.secrets import scrub_text
from . import torch_compat
from .hook_guard import HookGuard

MAX_FAILURES = 100  # Later failures of a process are counted as lost.
OUTER_FRAMES = 64  # Frames of the program's stack around the compiled code.
# The innermost ones tell failures apart; those around differ between the first call and the next
FRAMES_COMPARED = 3
MESSAGE_CHARS, TEXT_CHARS = 8_000, 64_000
MARK = "__compileboard__"  # on an exception: a Mark; on a watched function: its Origin
COMPILE = -1  # the position of what dynamo itself reports: the failure of a compile
# Raised on purpose through compiled code and caught by torch itself.
CONTROL_FLOW = frozenset({"_StopRecomputationError"})
GRAPH_PREFIX = "__compiled_fn"

Context = list[int | None] | None
Origin = tuple[Context, int]  # the compile, and when it was
Mark = tuple[int, int, Context]  # the process, the failure's position there, its compile
Write = Callable[[dict[str, Any], str | None, Context], None]

AddRepro = Callable[[BaseException, Context, "int | None", "tuple[Any, ...]"], None]

_failures: RuntimeFailures | None = None
_watched: weakref.WeakSet[Any] = weakref.WeakSet()


class RepeatedFailure:
    def __init__(self, position: int, phase: str, origin: Origin) -> None:
        self.position = position
        self.phase = phase
        self.origin = origin
        self.numbers = itertools.count(2)  # the first is written with the failure
        self.count = self.written_count = 1


class RuntimeFailures:
    """Failures of compiled code. Each is written once, then its count at 2, 4, 8, … and at
    the end.
    """

    def __init__(
        self,
        write: Write,
        guard: HookGuard,
        redact: Callable[[str], str],
        add_repro: AddRepro | None = None,
    ) -> None:
        self._write = write
        self._guard = guard
        self._redact = redact
        self._add_repro = add_repro
        self._known: dict[Any, RepeatedFailure] = {}

    def clear(self) -> None:
        self._known.clear()

    def add(
        self,
        error: BaseException,
        phase: str,
        origin: Origin,
        outer_frame: FrameType | None,
        ended_program: bool = False,
        arguments: tuple[Any, ...] = (),
    ) -> None:
        with self._guard:
            if (
                not isinstance(error, Exception)
                or type(error).__name__ in CONTROL_FLOW
                or find_mark(error) is not None
            ):
                return
            key = (
                phase,
                origin[1],
                tuple(origin[0] or ()),
                type(error),
                _innermost(error.__traceback__),
            )
            known = self._known.get(key)
            if known is None:
                self._add_new(key, error, phase, origin, outer_frame, ended_program)
                if self._add_repro is not None and not ended_program:
                    self._add_repro(
                        error,
                        origin[0],
                        self._known[key].position if key in self._known else None,
                        arguments,
                    )
                return
            mark(error, known.position)
            known.count = next(known.numbers)
            if known.count & (known.count - 1) == 0:
                self._update(known)

    def _add_new(
        self,
        key: Any,
        error: BaseException,
        phase: str,
        origin: Origin,
        outer_frame: FrameType | None,
        ended_program: bool,
    ) -> None:
        if len(self._known) >= MAX_FAILURES:
            self._guard.losses[f"failures beyond the first {MAX_FAILURES} of this process"] += 1
            return
        known = self._known[key] = RepeatedFailure(len(self._known), phase, origin)
        mark(error, known.position)
        fields = {
            "position": known.position,
            "phase": phase,
            "error_type": type(error).__name__,
            "message": self._clean(text_of(error), MESSAGE_CHARS),
            "ended_program": ended_program,
            "compiled_us": origin[1],
        }
        self._write(fields, self._clean(write_traceback(error, outer_frame), TEXT_CHARS), origin[0])

    def end(self, error: BaseException | None = None) -> None:
        with self._guard:
            if error is not None:
                self._end_by(error)
            for known in self._known.values():
                if known.count > known.written_count:
                    self._update(known)

    def _end_by(self, error: BaseException) -> None:
        marked = find_mark(error)
        if marked is None:
            self.add(error, "program", find_origin(error.__traceback__), None, ended_program=True)
            return
        pid, position, context = marked
        if pid != os.getpid():  # a worker's, which has recorded it
            return
        if position == COMPILE:
            self._write({"position": 0, "phase": "compile", "ended_program": True}, None, context)
        for known in self._known.values():
            if known.position == position:
                self._update(known, ended_program=True)

    def _update(self, known: RepeatedFailure, ended_program: bool = False) -> None:
        known.written_count = known.count
        fields = {
            "position": known.position,
            "phase": known.phase,
            "occurrence_count": known.count,
            "ended_program": ended_program,
            "compiled_us": known.origin[1],
        }
        self._write(fields, None, known.origin[0])

    def _clean(self, text: str, max_length: int) -> str:
        return clean_text(text, max_length, self._redact)


def watch(failures: RuntimeFailures | None) -> None:
    global _failures
    _failures = failures


def watch_failures(compiled: Callable[..., Any], phase: str, origin: Origin) -> Callable[..., Any]:
    def watched(*args: Any) -> Any:
        try:
            return compiled(*args)
        except BaseException as error:
            # Our own frame is the traceback's first; `raise` adds none. A class may forbid to set
            # attributes.
            BaseException.with_traceback(error, error.__traceback__ and error.__traceback__.tb_next)
            if _failures is not None:
                _failures.add(error, phase, origin, sys._getframe().f_back, arguments=args)
            raise

    watched.__compileboard__ = origin  # type: ignore[attr-defined]
    watched.__name__ = getattr(compiled, "__name__", watched.__name__)
    _watched.add(watched)
    return watched


def list_watched() -> list[Callable[..., Any]]:
    """List the compiled graphs that are in use, the oldest first."""
    return sorted(_watched, key=lambda watched: origin_of(watched)[1])


def origin_of(watched: Any) -> Origin:
    origin: Origin = watched.__compileboard__
    return origin


WATCHED_CODE: CodeType = watch_failures(
    print, "", (None, 0)
).__code__  # all that it makes have the same


def make_origin(context: list[int | None] | None) -> Origin:
    return context, time.time_ns() // 1000


def wrap_install_global(original: Callable[..., Any], guard: HookGuard) -> Callable[..., Any]:
    """Return a wrapper of OutputGraph.install_global_unsafe, which makes compiled graphs available
    to bytecode.

    torch wraps a graph in a function that disables Dynamo; only the function inside is replaced.
    """

    def install_global_unsafe(self: Any, name: str, value: Any) -> Any:
        if name.startswith(GRAPH_PREFIX):
            with guard:
                cell = torch_compat.disabled_cell(value)
                if cell is not None:
                    cell.cell_contents = watch_failures(
                        cell.cell_contents, "forward", make_origin(torch_compat.context_of())
                    )
        return original(self, name, value)

    return install_global_unsafe


def wrap_function_init(original: Callable[..., Any], guard: HookGuard) -> Callable[..., Any]:
    def __init__(cls: Any, name: str, bases: Any, attrs: Any) -> None:
        original(cls, name, bases, attrs)
        with guard:
            backward = torch_compat.compiled_backward(name, attrs)
            if backward is not None:
                context = torch_compat.context_of()
                origin = (_running_origin() if context is None else None) or make_origin(context)
                cls.backward = staticmethod(watch_failures(backward, "backward", origin))

    return __init__


def _running_origin() -> Origin | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is WATCHED_CODE:
            origin: Origin = frame.f_locals["origin"]
            return origin
        frame = frame.f_back
    return None


def mark(error: BaseException, position: int, context: Context = None) -> None:
    """Mark an exception as recorded with an attribute, because many types have no weak
    references.
    """
    try:
        BaseException.__setattr__(error, MARK, (os.getpid(), position, context))
    except Exception:  # it is then recorded again further out
        return


def find_mark(error: BaseException) -> Mark | None:
    for _ in range(10):
        with contextlib.suppress(AttributeError):
            marked: Mark = object.__getattribute__(
                error, MARK
            )  # a class's own __getattr__ may answer to any name
            return marked
        if error.__cause__ is None:
            break
        error = error.__cause__
    return None


def find_origin(trace: TracebackType | None) -> Origin:
    origin: Origin = (None, 0)
    while trace is not None:
        origin = find_code_origin(trace.tb_frame.f_code, trace.tb_frame.f_globals) or origin
        trace = trace.tb_next
    return origin


def find_code_origin(code: CodeType, names: Mapping[str, Any]) -> Origin | None:
    """Return the compile of the last graph that a function's code calls."""
    origin: Origin | None = None
    for name in code.co_names:
        if name.startswith(GRAPH_PREFIX):
            cell = torch_compat.disabled_cell(names.get(name))
            origin = getattr(cell.cell_contents, MARK, origin) if cell is not None else origin
    return origin


def find_end() -> BaseException | None:
    """Return the exception that is ending this process, if any.

    In a multiprocessing worker it is still propagating; otherwise Python has stored it in
    `sys.last_exc`. Test runners and notebooks store caught exceptions there too, so it counts only
    if its traceback starts in the main program.
    """
    error = sys.exc_info()[1]
    if error is None and not hasattr(sys, "ps1") and not sys.flags.interactive:
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        first = (
            error.__traceback__.tb_frame
            if error is not None and error.__traceback__ is not None
            else None
        )
        is_program = first is not None and (
            (first.f_code.co_name == "<module>" and first.f_globals.get("__name__") == "__main__")
            or first.f_globals.get("__name__") == "runpy"
        )
        error = error if is_program else None
    return error if isinstance(error, Exception) else None


def write_traceback(error: BaseException, outer_frame: FrameType | None) -> str:
    stack = traceback.walk_stack(outer_frame) if outer_frame is not None else iter(())
    around = list(
        itertools.islice(
            (frame for frame in stack if frame[0].f_code is not WATCHED_CODE), OUTER_FRAMES
        )
    )
    frames = traceback.StackSummary.extract(iter(around[::-1]))
    try:
        written = traceback.TracebackException(
            type(error), error, error.__traceback__, compact=True
        )
    except Exception:  # Python asks it for notes, and its class's __getattr__ raises
        frames.extend(traceback.extract_tb(error.__traceback__))
        last = f"{type(error).__name__}: {text_of(error)}\n"
        return "".join(["Traceback (most recent call last):\n", *frames.format(), last])
    written.stack = traceback.StackSummary.from_list([*frames, *written.stack])
    return "".join(written.format())


def _innermost(trace: TracebackType | None) -> tuple[tuple[str, int], ...]:
    frames = []
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return tuple(frames[-FRAMES_COMPARED:])


def clean_text(text: str, max_length: int, redact: Callable[[str], str]) -> str:
    """Redact secrets and shorten a text in its middle, since the exception is at the end.

    The output of a C++ compiler can have 100 KB.
    """
    if len(text) > max_length:
        text = (
            f"{text[: max_length // 2]}\n… {len(text) - max_length} characters left out …\n"
            f"{text[-max_length // 2 :]}"
        )
    return scrub_text(redact(text))


def text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "<an exception that cannot be printed>"
