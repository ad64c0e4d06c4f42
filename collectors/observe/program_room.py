"""Run a program with larger frames on its stack, for `run --stack-room`.

Python runs `__main__` from C, below any function that could reserve stack. CPython announces the
code to audit hooks just before it runs: our hook runs the same code with a frame of 1 MiB and exits
as C would have. Threads get the same frame when they start.
"""

from __future__ import annotations

import atexit
import signal
import sys
import threading
from contextlib import suppress
from types import CodeType
from typing import Any

from ..stack_room import FRAME_WORDS, HAS_CHUNKS, widen

MAIN_FILES = {"cpython.run_command": "<string>", "cpython.run_stdin": "<stdin>"}
_interrupted: list[bool] = []


def widen_program() -> None:
    if not HAS_CHUNKS:
        return
    widen(threading.Thread._bootstrap)  # type: ignore[attr-defined]
    if not (sys.flags.inspect or sys.flags.interactive):  # a prompt that follows is C's own
        atexit.register(end_by_sigint)
        sys.addaudithook(_make_hook())


def _make_hook() -> Any:
    main_file: str | None = None
    waiting = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal main_file, waiting
        if not waiting:
            return
        if event == "exec" and main_file is not None and _is_main(arguments[0], main_file):
            waiting = hook.__cantrace__ = False  # type: ignore[attr-defined]
            failure = None
            try:  # here, since each frame of ours is one below the program's
                exec(_with_wide_frame(arguments[0]), sys.modules["__main__"].__dict__)  # noqa: S102  # the program
            except SystemExit:
                raise
            except BaseException as error:
                failure = error
            end_program(failure)
        elif event == "cpython.run_file":
            main_file = arguments[0]
        elif event == "cpython.run_module":
            waiting = False
            import runpy

            widen(runpy._run_module_as_main)  # type: ignore[attr-defined]
        else:
            main_file = MAIN_FILES.get(event, main_file)

    hook.__cantrace__ = True  # type: ignore[attr-defined]  # debuggers and coverage see what it runs
    return hook


def _is_main(code: object, main_file: str) -> bool:
    return (
        isinstance(code, CodeType) and code.co_filename == main_file and code.co_name == "<module>"
    )


def _with_wide_frame(code: CodeType) -> CodeType:
    return code.replace(co_stacksize=FRAME_WORDS)


def end_program(failure: BaseException | None) -> None:
    """End the program as Python does.

    Always raises SystemExit, which ends the C code that announced the program.
    """
    if failure is None:
        raise SystemExit(0)
    _interrupted.append(isinstance(failure, KeyboardInterrupt))
    report(failure)
    raise SystemExit(1)


def report(error: BaseException) -> None:
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    sys.last_exc = error  # type: ignore[attr-defined]
    try:
        sys.excepthook(type(error), error, trace)
    except Exception as failure:
        sys.stderr.write("Error in sys.excepthook:\n")
        failure.__traceback__ = failure.__traceback__ and failure.__traceback__.tb_next
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, trace)


def end_by_sigint() -> None:
    """Kill the process with SIGINT, so that its shell sees that Ctrl-C ended it. This runs as the
    last exit handler.
    """
    if any(_interrupted):
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
