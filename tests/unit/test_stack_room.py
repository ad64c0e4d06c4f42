from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Iterator

import pytest

from benchmarks.faults.frame_stack import SLOW_FAULTS, in_fresh_thread, measure_depths
from compileboard import stack_room
from compileboard.collectors.stack_room import call_with_room


def slow_depths(depths) -> list[int]:
    return [depth.depth for depth in depths if depth.faults >= SLOW_FAULTS]


@pytest.fixture(scope="module")
def cliff() -> None:
    """Skip where this interpreter keeps its chunks: without the cliff, nothing shows that room
    mends it.
    """
    if not slow_depths(in_fresh_thread(lambda: measure_depths(200, 5))):
        pytest.skip(f"CPython {sys.version.split()[0]} has no frame-stack cliff")


def test_call_with_room_has_no_slow_depth(cliff: None) -> None:
    depths = in_fresh_thread(lambda: call_with_room(measure_depths, 200, call_count=5))
    assert len(depths) == 200 and slow_depths(depths) == []


def test_stack_room_decorator_has_no_slow_depth_in_its_own_thread_only(cliff: None) -> None:
    @stack_room
    def measure():
        return measure_depths(200, 5), in_fresh_thread(lambda: measure_depths(200, 5))

    here, thread = in_fresh_thread(measure)
    assert slow_depths(here) == [] and slow_depths(thread) != []


def test_stack_room_gives_room_to_what_a_coroutine_calls(cliff: None) -> None:
    async def main():
        await asyncio.sleep(0)
        return measure_depths(200, 5)

    depths = in_fresh_thread(stack_room(lambda: asyncio.run(main())))
    assert slow_depths(depths) == []


def test_stack_room_passes_arguments_results_and_exceptions_on() -> None:
    class Model:
        @stack_room
        def forward(self, x: int, *, scale: int = 1) -> int:
            """Scale."""
            if not scale:
                raise ValueError("scale is 0")
            return x * scale

    assert Model().forward(3, scale=2) == 6
    assert Model.forward.__doc__ == "Scale." and list(
        inspect.signature(Model.forward).parameters
    ) == [
        "self",
        "x",
        "scale",
    ]
    assert call_with_room(dict, function=1) == {"function": 1}
    with pytest.raises(ValueError, match="scale is 0"):
        Model().forward(3, scale=0)


def test_stack_room_keeps_the_recursion_limit() -> None:
    def depth(count: int = 0) -> int:
        try:
            return depth(count + 1)
        except RecursionError:
            return count

    assert abs(depth() - call_with_room(depth)) <= 2


def test_stack_room_refuses_functions_that_another_stack_resumes() -> None:
    async def coroutine() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match=r"room to '.*coroutine'.*asyncio\.run"):
        stack_room(coroutine)
    with pytest.raises(TypeError, match=r"room to '.*generator'.*its loop"):
        stack_room(generator)


def test_stack_room_is_a_decorator_however_its_module_was_imported() -> None:
    import compileboard.collectors.stack_room

    assert compileboard.stack_room is stack_room and callable(compileboard.stack_room)
    assert sys.modules["compileboard.collectors.stack_room"].call_with_room is call_with_room
