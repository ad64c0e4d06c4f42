"""Time a program's steps for a while, and trace a few more with torch's profiler.

A step is a call of the outermost compiled function. Each compiled graph gets a pair of marks on the
device's own timeline; nothing else is recorded at the same time. Outside the window, calls have no
overhead, because everything that the window replaced is restored. torch must be imported.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from ..contract.record_names import STEPS_PREFIX
from . import runtime_failures, torch_compat
from .hook_guard import HookGuard

CALM_STEPS = 3  # without a compile or recording, before a window opens by itself
TRACED_STEPS = 3
MAX_PARTS = 100_000  # calls of graphs in a window
MAX_TRACE_BYTES = 32 << 20
MAX_TRACED_US = 500_000  # The longest step that is traced; it is traced four times.
MAX_WAIT_S = 0.5  # How long another thread's profiler waits until the step's thread ends its trace.
MAX_TRACED_STEPS = 24  # Needed if several compiled functions are called in turn.
MAX_TRACED_PARTS = 1_000  # calls of graphs in a step that is traced
TEARDOWN = "TEARDOWN_CUPTI"
OWN_GRAPHS = "a window of steps, as the program records CUDA graphs of its own"
WAITING, SURVEY, TIMED, TRACED, ENDED = "waiting", "survey", "timed", "traced", "ended"

Write = Callable[[dict[str, Any], "str | None"], None]


@dataclass
class Graph:
    """A compiled graph: the function that Dynamo's code calls. Its inner function is replaced while
    a window is open.
    """

    watched: Callable[..., Any]
    original: Callable[..., Any]
    # In the survey, of its inputs:
    input_bytes: int = 0  # Inputs that the previous graph returned.
    shared_bytes: int = 0  # Inputs that the previous graph takes too.


@dataclass
class GraphCall:
    """The start and end of one graph call within a step."""

    index: int
    begin_ns: int
    begin: Any  # a CUDA event, None without a GPU
    end_ns: int = 0
    end: Any = None


@dataclass
class Step:
    begin_ns: int
    begin: Any
    end_ns: int = 0
    end: Any = None
    has_compiled: bool = False
    parts: list[GraphCall] = field(default_factory=list)
    function: str | None = None  # The called function, which distinguishes steps without graphs.


class StepWindow:
    def __init__(
        self,
        wanted: int,
        after: int | None,
        codes: Mapping[Any, CodeType],
        write: Write,
        guard: HookGuard,
        *,
        has_own_profiler: bool = False,
    ) -> None:
        self._wanted = wanted
        self._codes = codes  # The code that Dynamo began to compile, by the compile's context.
        # Those that may run in traced steps as they were written, each with its number:
        self._frames: dict[CodeType, int] = {}
        self._frame_contexts: list[Any] = []
        self._after = after
        self._write = write
        self._guard = guard
        self._phase = WAITING
        self._thread: int | None = None
        self._entry: FrameType | None = None  # The frame of the outermost running compiled call.
        self._call_count = self._calm_count = self._part_count = 0
        self._entered_before = torch_compat.compiled_call_count() or 0
        self._has_compiled = False
        self._graphs: list[Graph] = []
        self._steps: list[Step] = []
        self._step = Step(0, None)
        # Functions and modules of a name, of steps without graphs: id -> number
        self._called: dict[str | None, dict[int, int]] = {}
        self._cuda: Any = None
        self._events: Iterator[Any] = iter(())
        self._record_event: Callable[[Any], None] = lambda event: None
        # Of the last graph in the survey: address -> bytes
        self._returned: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        self._profiler: Any = None
        self._teardown: str | None = None
        self._traced_count = self._usual_traced_count = 0
        self._usual: Any = None  # what most timed steps call
        self._traced_functions: list[str | None] = []
        self._trace: str | None = None
        self._is_cut = self.is_starting = False
        self._has_own_profiler = has_own_profiler
        self._mark: Any = None
        self._open_frames: list[Any] = []
        self.on_end: Callable[[], None] = lambda: None

    @property
    def is_ended(self) -> bool:
        return self._phase == ENDED

    def note_compile(self) -> None:
        self._has_compiled = True

    def wrap_entry(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap torch's function that sets Dynamo's frame callback before a compiled call and
        restores the previous one afterwards.
        """

        def _maybe_set_eval_frame(callback: Any) -> Any:
            try:
                if self._has_own_profiler and self._profiler is not None:
                    before = original(None)  # as below
                    self._end_given_up()
                    original(before)
                entry = self._entry
                if entry is None:
                    if callback:
                        self._enter(sys._getframe(1))
                elif sys._getframe(1) is entry:
                    original(None)  # in 2.4 and 2.5, Dynamo is on, and would see us
                    self._leave()
                # A frame that has ended has no caller: it was entered before the window.
                elif callback and entry.f_back is None:
                    self._enter(sys._getframe(1))
            finally:  # also where a handler of a signal raises
                prior = original(callback)
            return prior

        torch_compat.exclude_from_dynamo(_maybe_set_eval_frame.__code__)
        return _maybe_set_eval_frame

    def end(self) -> None:
        """Write the measured times and restore everything that the window replaced."""
        if self._phase == ENDED:
            return
        with self._guard:
            self.stop_trace()
        with self._guard:
            if self._call_count:
                self._write(self._describe(), self._trace)
        self.abandon()

    def abandon(self) -> None:
        self._phase = ENDED
        self._unwatch_frames()
        self._restore_teardown()
        self._restore_graphs()
        self._graphs.clear()
        self._steps.clear()
        self._frames, self._events, self._trace = {}, iter(()), None
        self.on_end()

    def _restore_graphs(self) -> None:
        self._entry = None
        for graph in self._graphs:
            torch_compat.closure_cell(graph.watched, "compiled").cell_contents = graph.original

    def release_profiler(self) -> None:
        """Stop tracing so that the program can use torch's profiler. A process has only one."""
        self._has_own_profiler = True
        if self._profiler is None:
            return
        self._end_given_up()
        # Only the thread that started it can stop it, which it does at its next graph.
        until = time.monotonic() + MAX_WAIT_S
        while self._profiler is not None and time.monotonic() < until:
            time.sleep(0.005)

    def _end_given_up(self) -> None:
        """End a trace because the program wants to use the profiler."""
        if self._has_own_profiler and threading.get_ident() == self._thread:
            with self._guard:
                self.stop_trace(is_kept=False)

    # -- steps

    def _enter(self, frame: FrameType) -> None:
        if self._phase == WAITING and not self._is_due():
            self._entry, self._has_compiled = frame, False  # no more: it may wait for long
        elif self._thread in (None, threading.get_ident()):
            with self._guard:
                self._begin_step(frame)

    def _leave(self) -> None:
        if self._phase == WAITING:
            self._entry = None
            self._count_call()
        elif self._thread == threading.get_ident():
            with self._guard:
                self._end_step()
        else:  # it was entered while the window of another thread opened
            self._entry = None

    def _count_call(self) -> None:
        self._call_count += 1
        self._calm_count = 0 if self._has_compiled else self._calm_count + 1

    def _begin_step(self, entry: FrameType) -> None:
        # The end of a function that disables Dynamo looks like a start.
        if self._is_cut or "DisableContext" in getattr(entry.f_code, "co_qualname", ""):
            return
        if self._is_capturing():
            # What was timed is written at the end: a GPU that records must not be waited for.
            self._guard.losses[OWN_GRAPHS] += 1
            self._is_cut = True
            self._restore_graphs()
            return
        self._advance()
        if self._phase == ENDED:
            return
        self._entry = entry
        if self._phase != WAITING:
            self._thread = threading.get_ident()
        if self._has_compiled and self._phase == TIMED:
            self._replace_graphs(self._make_timed)
        self._has_compiled = False
        if self._phase == TRACED:
            self._mark = self._range(f"step {self._traced_count}")
            self._mark.__enter__()
            if not self._usual_traced_count:
                self._watch_frames()
        self._step = Step(time.perf_counter_ns(), self._record())

    def _end_step(self) -> None:
        entry, self._entry = self._entry, None
        step = self._step
        step.end, step.end_ns = self._record(), time.perf_counter_ns()
        if not step.parts and entry is not None:
            name, key = torch_compat.name_called(entry)
            numbers = self._called.setdefault(name, {})
            number = numbers.setdefault(key, len(numbers) + 1)
            step.function = f"{name} ({number})" if name and number > 1 else name
        step.has_compiled = self._has_compiled
        self._count_call()
        if self._phase == TIMED:
            self._steps.append(step)
        elif self._phase == TRACED:
            self._unwatch_frames()
            self._mark.__exit__(None, None, None)
            self._traced_count += 1
            self._traced_functions.append(step.function)
            self._usual_traced_count += (_list_called(step), step.function) == self._usual
            if (
                self._has_own_profiler
                or self._usual_traced_count > TRACED_STEPS
                or self._traced_count >= MAX_TRACED_STEPS
            ):
                self.end()

    def _advance(self) -> None:
        """Enter the next phase, between two steps."""
        if self._phase == WAITING and self._is_due():
            self._open()
        elif self._phase == SURVEY:
            self._phase = TIMED
            self._prepare_events()
            self._replace_graphs(self._make_timed)
        elif self._phase == TIMED and (
            len(self._steps) >= self._wanted or self._part_count >= MAX_PARTS
        ):
            # The last step ends where the next one begins.
            self._steps.append(Step(time.perf_counter_ns(), self._record()))
            self._phase = TRACED
            self._start_trace()
            if self._profiler is None:
                self.end()
            else:
                self._replace_graphs(self._make_traced)

    def _is_due(self) -> bool:
        if self._after is not None:
            return self._call_count >= self._after
        return self._calm_count >= CALM_STEPS

    def _open(self) -> None:
        self._cuda = torch_compat.initialized_cuda()
        self._phase = SURVEY
        self._replace_graphs(self._make_surveyed)

    def _prepare_events(self) -> None:
        if self._cuda is not None:
            count = self._wanted * (2 + 2 * len(self._step.parts)) + 1
            events = [self._cuda.Event(enable_timing=True) for _ in range(min(count, MAX_PARTS))]
            self._record_event = torch_compat.make_event_recorder()
            for event in events:
                self._record_event(event)  # the first time makes it, which takes longer
            self._events = iter(events)

    def _record(self) -> Any:
        if self._cuda is None or self._phase != TIMED:
            return None
        if self._part_count >= MAX_PARTS:
            return None
        try:
            event = next(self._events, None) or self._cuda.Event(enable_timing=True)
            self._record_event(event)
        except Exception:  # the GPU is in an error, which the program will meet
            return None
        return event

    # -- graphs

    def _replace_graphs(self, make: Callable[..., Any]) -> None:
        """Replace the functions that Dynamo's code calls for graphs, including new graphs."""
        known = {graph.watched for graph in self._graphs}
        for watched in runtime_failures.list_watched():
            if watched not in known:
                original = torch_compat.closure_cell(watched, "compiled").cell_contents
                self._graphs.append(Graph(watched, original))
        for index, graph in enumerate(self._graphs):
            wrapper = make(graph.original, index)
            torch_compat.exclude_from_dynamo(wrapper.__code__)
            torch_compat.closure_cell(graph.watched, "compiled").cell_contents = wrapper

    def _make_surveyed(self, compiled: Callable[..., Any], index: int) -> Callable[..., Any]:
        def surveyed(*args: Any) -> Any:
            with self._guard:
                self._survey_inputs(self._graphs[index], args)
            result = compiled(*args)
            with self._guard:
                self._returned = dict(torch_compat.list_storages((result,)))
                self._step.parts.append(GraphCall(index, 0, None))
            return result

        return surveyed

    def _survey_inputs(self, graph: Graph, arguments: Any) -> None:
        taken = dict(torch_compat.list_storages(arguments))
        graph.input_bytes = sum(self._returned.get(address, 0) for address in taken)
        graph.shared_bytes = sum(size for address, size in taken.items() if address in self._taken)
        self._taken = taken

    def _make_timed(self, compiled: Callable[..., Any], index: int) -> Callable[..., Any]:
        is_backward = _phase_of(self._graphs[index]) == "backward"
        record, clock, add = self._record, time.perf_counter_ns, self._add_part

        def timed(*args: Any) -> Any:
            # Another thread may have steps of its own; a backward runs in one of torch's.
            if not (is_backward or threading.get_ident() == self._thread):
                return compiled(*args)
            begin, begin_ns = record(), clock()
            result = compiled(*args)
            add(GraphCall(index, begin_ns, begin, clock(), record()))
            return result

        return timed

    def _add_part(self, part: GraphCall) -> None:
        self._part_count += 1
        if self._part_count <= MAX_PARTS:
            self._step.parts.append(part)

    def _make_traced(self, compiled: Callable[..., Any], index: int) -> Callable[..., Any]:
        def traced(*args: Any) -> Any:
            self._end_given_up()
            if threading.get_ident() == self._thread:
                self._step.parts.append(GraphCall(index, time.perf_counter_ns(), None))
            with self._range(f"graph {index}"):
                return compiled(*args)

        return traced

    def _is_capturing(self) -> bool:
        """Return whether the program is recording a CUDA graph, which would include our marks."""
        return self._cuda is not None and bool(self._cuda.is_current_stream_capturing())

    # -- the trace

    def _watch_frames(self) -> None:
        """Mark the frames that Dynamo skipped: those it has seen that run uncompiled.

        This is slow, so it ends with the first traced step in the usual order, whose times are not
        used.
        """
        if not self._frames:
            known = list(self._codes.items())
            self._frames = {code: number for number, (_context, code) in enumerate(known)}
            self._frame_contexts = [context for context, _code in known]
        if self._frames and sys.getprofile() is None:
            sys.setprofile(self._watch_frame)

    def _watch_frame(self, frame: FrameType, event: str, _argument: Any) -> None:
        if frame.f_code in self._frames:
            with self._guard:
                if event == "call":
                    number = self._frames[frame.f_code]
                    mark = self._range(f"frame {number}")
                    self._open_frames.append(mark)
                    mark.__enter__()
                elif event == "return" and self._open_frames:
                    self._open_frames.pop().__exit__(None, None, None)

    def _range(self, name: str) -> Any:
        if self._profiler is None:
            return contextlib.nullcontext()
        return torch_compat.profiler_range(STEPS_PREFIX + name)

    def _unwatch_frames(self) -> None:
        if sys.getprofile() == self._watch_frame:
            sys.setprofile(None)

    def _start_trace(self) -> None:
        timed = self._steps[:-1]
        calm = [step for step in timed if not step.has_compiled] or timed[-1:]
        took_us = max(step.end_ns - step.begin_ns for step in calm) / 1000
        part_count = max(len(step.parts) for step in calm)
        if took_us > MAX_TRACED_US or part_count > MAX_TRACED_PARTS or self._has_own_profiler:
            return
        orders = Counter((_list_all(step), _list_called(step), step.function) for step in calm)
        self._usual = orders.most_common(1)[0][0][1:]
        # Else each call of CUDA takes 2 to 4 µs more from then on, as torch's profiler leaves its
        # hooks in place. Where that is not safe, torch sets "0" itself.
        if TEARDOWN not in os.environ:
            self._teardown = os.environ[TEARDOWN] = "1"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.is_starting = True
            try:
                self._profiler = torch_compat.start_profiler(with_cuda=self._cuda is not None)
            finally:
                self.is_starting = False

    def stop_trace(self, *, is_kept: bool = True) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                profiler.stop()
                self._trace = self._export(profiler) if is_kept else None
        finally:
            self._restore_teardown()

    def _export(self, profiler: Any) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            profiler.export_chrome_trace(path)
            if os.path.getsize(path) > MAX_TRACE_BYTES:
                self._guard.losses[f"a trace of over {MAX_TRACE_BYTES >> 20} MiB"] += 1
                return None
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()

    def _restore_teardown(self) -> None:
        if self._teardown is not None and os.environ.get(TEARDOWN) == self._teardown:
            del os.environ[TEARDOWN]
        self._teardown = None

    # -- what is written

    def _estimate_calls_before(self) -> int:
        """Estimate the number of steps before the window was requested. torch counts every call
        of a compiled function, including nested ones.
        """
        entered = (torch_compat.compiled_call_count() or 0) - self._entered_before
        return round(self._entered_before * self._call_count / entered) if entered > 0 else 0

    def _describe(self) -> dict[str, Any]:
        used = sorted({part.index for step in self._steps for part in step.parts})
        if self._cuda is not None:
            self._cuda.synchronize()
        timed = [step for step in self._steps if step.end_ns]
        following = [*self._steps[1:], None][: len(timed)]
        return {
            "wanted_count": self._wanted,
            "earlier_count": self._call_count
            - len(timed)
            - self._traced_count
            + self._estimate_calls_before(),
            "device": None if self._cuda is None else self._cuda.get_device_name(),
            "peak_bytes_per_s": torch_compat.peak_bytes_per_s(self._cuda),
            "graphs": [
                {
                    "number": index,
                    "phase": _phase_of(self._graphs[index]),
                    "context": runtime_failures.origin_of(self._graphs[index].watched)[0],
                    "input_bytes": self._graphs[index].input_bytes,
                    "shared_bytes": self._graphs[index].shared_bytes,
                }
                for index in used
            ],
            "frames": self._frame_contexts,
            "traced_functions": self._traced_functions,
            "steps": [
                {
                    "compiled": step.has_compiled,
                    "graph_numbers": [part.index for part in step.parts],
                    "function": step.function,
                    "host": _split(step, after, _host_marks, _host_span),
                    "device": None
                    if step.begin is None
                    else _split(step, after, _device_marks, _device_span),
                }
                for step, after in zip(timed, following)
            ],
        }


def _list_all(step: Step) -> tuple[int, ...]:
    return tuple(part.index for part in step.parts)


def _list_called(step: Step) -> tuple[int, ...]:
    return tuple(part.index for part in step.parts if part.begin_ns < step.end_ns)


def _phase_of(graph: Graph) -> str:
    phase: str = torch_compat.closure_cell(graph.watched, "phase").cell_contents
    return phase


def _split(
    step: Step, after: Step | None, marks_of: Callable[[Any], Any], span: Callable[..., float]
) -> dict[str, Any]:
    """Return the times between the marks of a step: gap, graph, gap, graph, … gap of its call, and
    the same from the end of the call to the next step.
    """
    inside = [part for part in step.parts if part.begin_ns < step.end_ns]
    outside = step.parts[len(inside) :]
    begin, end = marks_of(step)
    marks = [begin, *_flatten(inside, marks_of), end]
    later = [end, *_flatten(outside, marks_of)]
    return {
        "call_us": list(itertools.starmap(span, itertools.pairwise(marks))),
        "after_us": None
        if after is None
        else list(itertools.starmap(span, itertools.pairwise([*later, marks_of(after)[0]]))),
    }


def _flatten(parts: list[Any], marks_of: Callable[[Any], Any]) -> list[Any]:
    return [mark for part in parts for mark in marks_of(part)]


def _host_marks(timed: Step | GraphCall) -> tuple[int, int]:
    return timed.begin_ns, timed.end_ns


def _host_span(begin_ns: int, end_ns: int) -> float:
    return round(max(end_ns - begin_ns, 0) / 1000, 1)


def _device_marks(timed: Step | GraphCall) -> tuple[Any, Any]:
    return timed.begin, timed.end


def _device_span(begin: Any, end: Any) -> float:
    return round(max(float(begin.elapsed_time(end)) * 1000, 0.0), 1)
