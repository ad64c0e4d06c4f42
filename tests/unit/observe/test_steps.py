"""A window of steps, around functions that call compiled graphs as Dynamo's code does."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.observe import runtime_failures, torch_compat
from compileboard.collectors.observe.hook_guard import HookGuard
from compileboard.collectors.observe.runtime_failures import watch_failures
from compileboard.collectors.observe.steps import StepWindow

FIRST, SECOND = [None, 0, 0, 0, None], [None, 1, 0, 0, None]


class Program:
    def __init__(self, window: StepWindow) -> None:
        self.set_eval_frame = window.wrap_entry(lambda callback: None)
        self.first = watch_failures(lambda x: x + 1, "forward", (FIRST, 1))
        self.second = watch_failures(lambda x: x * 2, "forward", (SECOND, 2))
        self.backward = watch_failures(lambda x: -x, "backward", (SECOND, 3))

    def step(self, number: int, *graphs: Callable[[int], int]) -> int:
        self.set_eval_frame(print)
        try:
            for graph in graphs:
                number = self.call_graph(number, graph)
        finally:
            self.set_eval_frame(None)
        return number

    def call_graph(self, number: int, graph: Callable[[int], int]) -> int:
        self.set_eval_frame(None)  # Dynamo is off inside a graph
        try:
            return graph(number)
        finally:
            self.set_eval_frame(print)


@pytest.fixture(autouse=True)
def own_graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(runtime_failures, "_watched", type(runtime_failures._watched)())
    monkeypatch.setattr(torch_compat, "initialized_cuda", lambda: None)
    monkeypatch.setattr(torch_compat, "exclude_from_dynamo", lambda code: True)
    monkeypatch.setattr(torch_compat, "start_profiler", lambda with_cuda: None)
    yield


def open_window(count: int, after: int | None = 0) -> tuple[StepWindow, list[dict[str, Any]]]:
    written: list[dict[str, Any]] = []
    window = StepWindow(
        count, after, {}, lambda fields, trace: written.append(fields), HookGuard(Counter())
    )
    return window, written


def test_each_step_has_its_graphs_and_the_gaps_between_them() -> None:
    window, written = open_window(2)
    program = Program(window)
    for _ in range(3):  # one to survey, two to time
        assert program.step(3, program.first, program.second) == 8
        program.backward(1)
    window.end()
    (fields,) = written
    assert [graph["context"] for graph in fields["graphs"]] == [FIRST, SECOND, SECOND]
    assert [graph["phase"] for graph in fields["graphs"]] == ["forward", "forward", "backward"]
    one, two = fields["steps"]
    assert one["graph_numbers"] == two["graph_numbers"] == [0, 1, 2]
    assert [len(one["host"][name]) for name in ("call_us", "after_us")] == [5, 3]
    assert (two["host"]["after_us"], one["device"], fields["earlier_count"]) == (None, None, 1)


def test_steps_before_the_window_are_counted_without_the_calls_in_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered = 300  # of 100 steps, each of which calls two compiled functions more
    monkeypatch.setattr(torch_compat, "compiled_call_count", lambda: entered)
    window, written = open_window(2)
    program = Program(window)
    for _ in range(3):
        program.step(3, program.first)
        entered += 3
    window.end()
    assert (written[0]["earlier_count"], len(written[0]["steps"])) == (101, 2)


def test_dynamo_is_switched_where_a_handler_of_a_signal_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window, _written = open_window(1)
    switched: list[Any] = []
    switch = window.wrap_entry(switched.append)

    def interrupted(_entry: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr(window, "_enter", interrupted)
    with pytest.raises(TimeoutError):
        switch(print)
    assert switched == [print]


def test_times_are_those_of_the_parts() -> None:
    window, written = open_window(1)
    program = Program(window)
    slow = watch_failures(lambda x: time.sleep(0.02) or x, "forward", (FIRST, 1))
    for _ in range(2):
        program.step(3, slow, lambda x: time.sleep(0.01) or x, program.second)
    window.end()
    before, graph, gap, *_rest = written[0]["steps"][0]["host"]["call_us"]
    assert before < 5_000 and 20_000 <= graph < 60_000 and 10_000 <= gap < 50_000


def test_a_window_opens_once_nothing_compiles_any_more() -> None:
    window, written = open_window(2, after=None)
    program = Program(window)
    for number in range(9):
        program.set_eval_frame(print)
        if number < 2:
            window.note_compile()
        program.set_eval_frame(None)
    window.end()
    # Two that compile, three that do not, one to survey.
    assert (written[0]["earlier_count"], len(written[0]["steps"])) == (6, 2)


def test_a_window_that_never_began_says_how_many_calls_came() -> None:
    for call_count in (0, 3):
        window, written = open_window(2, after=9)
        program = Program(window)
        for _ in range(call_count):
            program.step(3, program.first)
        window.end()
        assert [(one["earlier_count"], one["steps"]) for one in written] == [(3, [])][:call_count]


def test_steps_without_graphs_have_the_function_that_they_call() -> None:
    window, written = open_window(5)
    switch = window.wrap_entry(lambda callback: None)

    def call(fn: Callable[..., Any]) -> None:  # as torch's wrapper names it
        switch(print)
        switch(None)

    modules = [Program(window), Program(window)]
    for _ in range(2):
        call(open_window)
        for module in modules:
            call(module.step)
    window.end()
    names = [step["function"] for step in written[0]["steps"]]
    assert names == ["Program", "Program (2)", "open_window", "Program", "Program (2)"]


def test_a_step_that_compiles_in_the_window_says_so() -> None:
    window, written = open_window(3)
    program = Program(window)
    for number in range(4):
        program.set_eval_frame(print)
        if number == 2:
            window.note_compile()
        program.set_eval_frame(None)
    window.end()
    assert [step["compiled"] for step in written[0]["steps"]] == [False, True, False]


def test_nothing_is_left_in_place() -> None:
    window, _written = open_window(1)
    program = Program(window)
    before = torch_compat.closure_cell(program.first, "compiled").cell_contents
    ended: list[bool] = []
    window.on_end = lambda: ended.append(True)
    for _ in range(7):
        program.step(3, program.first)
    assert window.is_ended and ended == [True]
    assert torch_compat.closure_cell(program.first, "compiled").cell_contents is before


def test_an_exception_passes_through_and_the_next_step_is_timed() -> None:
    window, written = open_window(2)
    program = Program(window)
    failing = watch_failures(lambda x: 1 // x, "forward", (FIRST, 1))
    program.step(1, failing)
    with pytest.raises(ZeroDivisionError):
        program.step(0, failing)
    assert program.step(1, failing) == 1
    window.end()
    assert [step["graph_numbers"] for step in written[0]["steps"]] == [
        [],
        [written[0]["graphs"][0]["number"]],
    ]


def test_steps_of_another_thread_are_its_own() -> None:
    window, written = open_window(2)
    program = Program(window)
    program.step(3, program.first)
    thread = threading.Thread(target=lambda: program.step(3, program.first))
    thread.start()
    thread.join()
    program.step(3, program.first)
    window.end()
    assert [step["graph_numbers"] for step in written[0]["steps"]] == [[0]]


def test_a_forked_process_has_no_window() -> None:
    window, written = open_window(5)
    program = Program(window)
    program.step(3, program.first)
    child = os.fork()
    if not child:
        window.abandon()
        program.step(3, program.first)
        os._exit(0 if window.is_ended and not written else 1)
    assert os.waitpid(child, 0)[1] == 0
    program.step(3, program.first)
    window.end()
    assert len(written[0]["steps"]) == 1


class Profiler:
    is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text("{}", encoding="utf-8")


@pytest.fixture
def profiler(monkeypatch: pytest.MonkeyPatch) -> Profiler:
    found = Profiler()
    monkeypatch.setattr(torch_compat, "start_profiler", lambda with_cuda: found)
    monkeypatch.setattr(torch_compat, "profiler_range", lambda name: contextlib.nullcontext())
    return found


@pytest.mark.parametrize(("period", "traced_count"), [(1, 4), (2, 7), (5, 16), (99, 24)])
def test_the_trace_goes_on_until_enough_of_its_steps_are_like_the_usual_one(
    profiler: Profiler, period: int, traced_count: int
) -> None:
    window, _written = open_window(3)
    program = Program(window)
    for _ in range(4):  # one to survey, three to time
        program.step(3, program.first)
    for number in itertools.count():
        program.step(3, program.first if number % period == 0 else program.second)
        if profiler.is_stopped:
            break
    assert number + 1 == traced_count and window.is_ended


def test_a_trace_ends_within_its_step_where_another_thread_profiles(profiler: Profiler) -> None:
    window, written = open_window(1)
    program = Program(window)
    for _ in range(2):
        program.step(3, program.first)
    asking = threading.Thread(target=window.release_profiler)
    first = watch_failures(lambda x: asking.start() or x, "forward", (FIRST, 1))
    was_stopped = []
    program.set_eval_frame(print)
    program.call_graph(3, first)
    while not window._has_own_profiler:
        time.sleep(0.001)
    program.call_graph(
        3, watch_failures(lambda x: was_stopped.append(profiler.is_stopped), "forward", (SECOND, 2))
    )
    asking.join()
    program.set_eval_frame(None)
    assert was_stopped == [True] and window.is_ended and len(written) == 1
