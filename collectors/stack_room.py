"""Room on CPython's frame stack: functions called through here never map and unmap memory for a frame.

CPython 3.11 and later keep the frames of Python functions in chunks of 16 KiB, a list of chunks for each thread. A
frame that does not fit gets a new chunk, which is unmapped when that frame returns. Where a chunk ends between a
function and what it calls, each of those calls maps, faults and unmaps: up to 60% of the time of a compiled model on
CUDA. A frame of 1 MiB gets a chunk of 2 MiB, and all that is called from it has its place there (docs/stack-cliff.md).
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # a program started with room loads this before its first line: nothing else is imported then
    from collections.abc import Callable
    from typing import Any, ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

# CPython rounds a chunk up to a power of two: a frame just above 1 MiB leaves almost 1 MiB of a chunk of 2 MiB free.
FRAME_WORDS = 1 << 17
# Half as much also has its place in the free half of such a chunk, so nothing is mapped for it there.
BACKWARD_FRAME_WORDS = FRAME_WORDS // 2
HAS_CHUNKS = sys.implementation.name == "cpython" and sys.version_info >= (3, 11)


def widen(function: Any, frame_words: int = FRAME_WORDS) -> None:
    """Make a Python function's frame large, in place: whatever runs below it has room."""
    if HAS_CHUNKS:
        function.__code__ = function.__code__.replace(co_stacksize=frame_words)


def widen_backward() -> None:
    """Make room for every backward pass of compiled code, in whatever thread autograd runs it.

    Autograd starts threads in C++ (one for each GPU), which have no first Python function to widen; this is the one
    that they call for it. Needs torch.
    """
    from torch.autograd.function import BackwardCFunction

    widen(BackwardCFunction.apply, BACKWARD_FRAME_WORDS)


def call_with_room(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function with room on this thread's frame stack, for as long as the call runs.

    It costs one mapping a call: put it around a loop, not into it. A no-op on Python 3.10, which has no chunks.
    """
    return function(*args, **kwargs)


widen(call_with_room)


def stack_room(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function run with room on its thread's frame stack: @compileboard.stack_room above a training loop.

    Raises: TypeError for a coroutine or generator function, whose body runs in the stack of whoever resumes it.
    """
    import functools
    import inspect

    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(_refusal(function, "coroutine", "asyncio.run(main())"))
    if inspect.isgeneratorfunction(function):
        raise TypeError(_refusal(function, "generator", "its loop"))

    @functools.wraps(function)
    def run_with_room(*args: P.args, **kwargs: P.kwargs) -> R:
        return call_with_room(function, *args, **kwargs)

    return run_with_room


def _refusal(function: Callable[..., object], kind: str, runner: str) -> str:
    return (
        f"stack_room cannot give room to {getattr(function, '__qualname__', function)!r}: the body of a {kind} runs in "
        f"the stack of the function that resumes it. Decorate the function that runs {runner}"
    )
