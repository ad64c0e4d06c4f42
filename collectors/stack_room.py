"""Reserve space on CPython's frame stack, so that calls never map and unmap memory for a frame.

CPython 3.11 and later keep Python frames in 16 KiB chunks per thread. A frame that does not fit
gets a new chunk, unmapped when it returns. If a chunk ends between a function and its callees,
every call maps, faults and unmaps: up to 60% of the time of a compiled model on CUDA. A frame of 1
MiB gets a 2 MiB chunk with space for all its callees (docs/stack-cliff.md).
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if (
    TYPE_CHECKING
):  # a program started with room loads this before its first line: nothing else is imported then
    from collections.abc import Callable
    from typing import Any, ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

# CPython rounds a chunk up to a power of two: a frame just above 1 MiB leaves almost 1 MiB of a
# chunk of 2 MiB free.
FRAME_WORDS = 1 << 17
# Half as much also has its place in the free half of such a chunk, so nothing is mapped for it
# there.
BACKWARD_FRAME_WORDS = FRAME_WORDS // 2
HAS_CHUNKS = sys.implementation.name == "cpython" and sys.version_info >= (3, 11)


def widen(function: Any, frame_words: int = FRAME_WORDS) -> None:
    """Enlarge a Python function's frame in place, so that its callees have space."""
    if HAS_CHUNKS:
        function.__code__ = function.__code__.replace(co_stacksize=frame_words)


def widen_backward() -> None:
    """Reserve frame stack for every backward of compiled code, in any autograd thread.

    Autograd starts threads in C++, which have no first Python function whose frame could be
    enlarged, so the function that they call is enlarged. Needs torch.
    """
    from torch.autograd.function import BackwardCFunction

    widen(BackwardCFunction.apply, BACKWARD_FRAME_WORDS)


def call_with_room(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function with space reserved on this thread's frame stack.

    Each call maps memory once, so use it around a loop, not inside. It has no effect on Python
    3.10.
    """
    return function(*args, **kwargs)


widen(call_with_room)


def stack_room(function: Callable[P, R]) -> Callable[P, R]:
    """Reserve frame stack while a function runs. Use it as `@compileboard.stack_room` on a training
    loop.

    >>> import compileboard
    >>> @compileboard.stack_room
    ... def train(epochs):
    ...     return f"{epochs} epochs"
    >>> train(2)
    '2 epochs'

    Raises TypeError for coroutine and generator functions, whose body runs on their caller's stack.
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
        f"stack_room cannot give room to {getattr(function, '__qualname__', function)!r}: the "
        f"body of a {kind} runs in "
        f"the stack of the function that resumes it. Decorate the function that runs {runner}"
    )
