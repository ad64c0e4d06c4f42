"""Decode a window of steps: the times of graphs and gaps, and a trace of torch's profiler.

A trace has torch's own ranges ("TorchDynamo Cache Lookup", "## Call CompiledFxGraph …") and those
of the window ("compileboard step 1", "compileboard graph 0").
"""

from __future__ import annotations

import hashlib
import heapq
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from compileboard.collectors.contract.events import ArtifactSeen
from compileboard.collectors.contract.record_names import STEPS_PREFIX, STEPS_TRACE
from compileboard.collectors.contract.shapes import (
    HostTime,
    KernelTime,
    StepGraph,
    TracedFrame,
    TracedGap,
    TracedGraph,
    TracedSpan,
    TracedSteps,
)
from compileboard.collectors.contract.step_orders import find_usual_order, list_called
from compileboard.collectors.decode.records import name_compile

_STEP, _GRAPH, _FRAME = (f"{STEPS_PREFIX}{what} " for what in ("step", "graph", "frame"))
_OURS = re.compile(f"{STEPS_PREFIX}(step|graph|frame) [0-9]{{1,9}}")
MAX_SPANS = 1_500
MAX_KERNELS = 200
_HOST = frozenset(("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"))
_DEVICE = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
_REGION = "Torch-Compiled Region"
_LOOKUP = "TorchDynamo Cache Lookup"
_COMPILED = "## Call CompiledFxGraph"
# Operations for which inductor calls a library, unless it generates them itself.
_LIBRARY = (
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::cudnn_",
    "aten::convolution",
    "aten::_flash",
    "aten::_efficient",
    "aten::_scaled",
    "aten::sort",
    "aten::topk",
)
# torch's prefix for the program's operations outside compiled regions.
_NO_OPERATIONS = (_REGION, _LOOKUP, _COMPILED, "Pregraph bytecode", "AOTDispatcher Runtime")


@dataclass(eq=False)
class Span:
    name: str
    category: str
    begin_us: float
    end_us: float
    thread: int
    correlation: int | None = None
    parent: Span | None = None
    kind: str = ""
    children: list[Span] = field(default_factory=list)

    @property
    def self_us(self) -> float:
        return self.end_us - self.begin_us - sum(c.end_us - c.begin_us for c in self.children)

    def ancestors(self) -> Iterator[Span]:
        span: Span | None = self
        while span is not None:
            yield span
            span = span.parent

    def find(self, prefix: str) -> Span | None:
        return next((span for span in self.ancestors() if span.name.startswith(prefix)), None)


def parse_graphs(metadata: dict[str, Any]) -> list[StepGraph]:
    return [
        StepGraph(
            number=graph["number"],
            phase=graph["phase"],
            compile_id=_name_compile(graph["context"]),
            input_bytes=graph["input_bytes"],
            shared_bytes=graph["shared_bytes"],
        )
        for graph in metadata["graphs"]
    ]


def _name_compile(context: list[int | None] | None) -> str | None:
    autograd_id, frame_id, frame_compile_id, *_ = context or [None] * 3
    return name_compile(autograd_id, frame_id, frame_compile_id)


def read_trace(text: str) -> dict[str, Any] | None:
    """Return the events of a trace without names of local files, None if it cannot be read."""
    try:
        trace = json.loads(text)
        return {"displayTimeUnit": "ms", "traceEvents": list(trace["traceEvents"])}
    except (ValueError, KeyError, TypeError):
        return None


def make_artifact(trace: dict[str, Any], context: dict[str, Any]) -> ArtifactSeen:
    text = json.dumps(trace, separators=(",", ":"))
    body = text.encode()
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest()
    return ArtifactSeen(
        **context,
        name=STEPS_TRACE,
        encoding="json",
        state="kept",
        size_bytes=len(body),
        md5=digest,
        text=text,
    )


def parse_trace(trace: dict[str, Any], metadata: dict[str, Any]) -> TracedSteps | None:
    """Return a trace's results for steps like the usual one, None if it has fewer than two such
    steps.
    """
    try:
        order = find_usual_order(metadata["steps"])
        functions = metadata.get("traced_functions") or []
        if order and not order[0]:  # steps without graphs are told apart by their function
            return _sum_up(trace, metadata["frames"], (), [name == order[2] for name in functions])
        return order and _sum_up(trace, metadata["frames"], list_called(order))
    except Exception:  # The trace does not have torch's form: its steps are kept without it.
        return None


def _sum_up(
    trace: dict[str, Any],
    frames: list[Any],
    called: tuple[int, ...],
    is_usual: Sequence[bool] = (),
) -> TracedSteps | None:
    spans = [*_read_spans(trace["traceEvents"])]
    host = [span for span in spans if span.category in _HOST]
    _nest_spans(host)
    of_inductor = {
        graph for span in host if span.name.startswith(_COMPILED) and (graph := span.find(_GRAPH))
    }
    for span in host:
        span.kind = _find_kind(span, of_inductor)
    steps = sorted(
        (
            span
            for span in host
            if span.name.startswith(_STEP)
            and _list_called(span) == called
            and (not is_usual or is_usual[_number_of(span)])
        ),
        key=lambda span: span.begin_us,
    )
    if len(steps) < 2:
        return None
    # The first one starts the profiler's own machinery, and its skipped frames are marked.
    first = steps.pop(0)
    launches = {span.correlation: span for span in host if span.correlation}
    device = [span for span in spans if span.category in _DEVICE]
    for span in device:
        span.parent = launches.get(span.correlation or 0)
    middle = sorted(steps, key=lambda step: step.end_us - step.begin_us)[len(steps) // 2]
    return TracedSteps(
        step_count=len(steps),
        step_us=_round_us(median(step.end_us - step.begin_us for step in steps)),
        host=_split_host(steps, host),
        graphs=_sum_graphs(steps, host, device),
        gaps=_measure_gaps(middle, device),
        frames=_measure_frames(first, frames),
        eager_kernels=_count_kernels(
            [span for span in device if _is_eager(span, steps)], len(steps)
        ),
        spans=_choose_drawn_spans(middle, host, device),
    )


def _read_spans(events: list[dict[str, Any]]) -> Iterator[Span]:
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in _HOST | _DEVICE:
            begin_us, arguments = float(event["ts"]), event.get("args") or {}
            thread, correlation = event.get("tid"), arguments.get("correlation")
            name = str(event["name"])
            if name.startswith(STEPS_PREFIX) and not _OURS.fullmatch(name):
                continue
            yield Span(
                name=name,
                category=event["cat"],
                begin_us=begin_us,
                end_us=begin_us + float(event["dur"]),
                thread=thread if isinstance(thread, int) else 0,
                correlation=correlation if isinstance(correlation, int) else None,
            )


def _list_called(step: Span) -> tuple[int, ...]:
    graphs = [span for span in _list_inside(step) if span.name.startswith(_GRAPH)]
    graphs.sort(key=lambda span: span.begin_us)
    return tuple(_number_of(span) for span in graphs)


def _number_of(span: Span) -> int:
    return int(span.name.rpartition(" ")[2])


def _nest_spans(spans: list[Span]) -> None:
    stacks: dict[int, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: (span.begin_us, -span.end_us)):
        stack = stacks[span.thread]
        while stack and stack[-1].end_us <= span.begin_us:
            stack.pop()
        if stack:
            span.parent = stack[-1]
            stack[-1].children.append(span)
        stack.append(span)


def _find_kind(span: Span, of_inductor: set[Span]) -> str:
    """Return the kind of host work in a span, excluding nested spans."""
    if span.name.startswith(_WAITS):
        return "wait"
    if span.find(_LOOKUP):
        return "guards"
    if span.find(_COMPILED):
        return "graph"
    graph = span.find(_GRAPH)
    if graph is not None:
        # Backends other than inductor have no ranges inside.
        return "wrapper" if graph in of_inductor else "graph"
    is_operation = not span.name.startswith((STEPS_PREFIX, *_NO_OPERATIONS))
    return "eager" if is_operation and span.category != "user_annotation" else "python"


def _split_host(steps: list[Span], host: list[Span]) -> list[HostTime]:
    times: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(steps))
    counts: Counter[str] = Counter()
    for span in host:
        step = span.find(_STEP)
        if step in steps:
            times[span.kind][steps.index(step)] += span.self_us
            counts[span.kind] += span.parent is None or span.parent.kind != span.kind
    return [
        HostTime(
            kind=kind, self_us=_round_us(median(each)), call_count=round(counts[kind] / len(steps))
        )
        for kind, each in sorted(times.items(), key=lambda item: -median(item[1]))
    ]


def _sum_graphs(steps: list[Span], host: list[Span], device: list[Span]) -> list[TracedGraph]:
    first_us = steps[0].begin_us
    called: dict[int, list[Span]] = defaultdict(list)
    for span in host:
        if span.name.startswith(_GRAPH) and span.begin_us >= first_us:
            called[_number_of(span)].append(span)
    kernels: dict[str, list[Span]] = defaultdict(list)
    for span in device:
        graph = span.find(_GRAPH)
        if graph is not None and graph.begin_us >= first_us:
            kernels[graph.name].append(span)
    return [
        TracedGraph(
            number=number,
            call_us=_round_us(median(span.end_us - span.begin_us for span in spans)),
            wrapper_us=_rounded_median(
                sum(inner.self_us for inner in _list_inside(span) if inner.kind == "wrapper")
                for span in spans
                if span.kind == "wrapper"
            ),
            entry_us=_rounded_median(filter(None, map(_measure_entry, spans))),
            guard_us=_rounded_median(filter(None, map(_find_lookup, spans))),
            kernels=_count_kernels(kernels[f"{_GRAPH}{number}"], len(spans)),
            first_kernel=_kernel_name_at(kernels[f"{_GRAPH}{number}"], 0),
            last_kernel=_kernel_name_at(kernels[f"{_GRAPH}{number}"], -1),
        )
        for number, spans in sorted(called.items())
    ]


def _kernel_name_at(kernels: list[Span], place: int) -> str | None:
    ordered = sorted(kernels, key=lambda span: span.begin_us)
    return ordered[place].name[:200] if ordered else None


def _list_inside(span: Span) -> Iterator[Span]:
    waiting = [span]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += one.children


def _measure_entry(graph: Span) -> float | None:
    """Return the time of a call before its first operation plus that after its last."""
    operations = [
        span
        for span in _list_inside(graph)
        if span.parent is not None and span.parent.name.startswith(_COMPILED)
    ]
    if not operations:
        return None
    begin_us = min(span.begin_us for span in operations)
    end_us = max(span.end_us for span in operations)
    return begin_us - graph.begin_us + graph.end_us - end_us


def _find_lookup(graph: Span) -> float | None:
    """Return the time of a graph's guards, which torch evaluates before it."""
    region = graph.find(_REGION)
    around = region.parent if region is not None else None
    if region is None or around is None:
        return None
    lookups = [
        span.end_us - span.begin_us
        for span in around.children
        if span.name == _LOOKUP and span.end_us <= region.begin_us
    ]
    return lookups[-1] if lookups else None


def _is_eager(kernel: Span, steps: list[Span]) -> bool:
    return kernel.find(_STEP) in steps and kernel.find(_GRAPH) is None


def _list_by_gap(step: Span) -> Iterator[tuple[int, Span]]:
    """Yield a step's spans outside compiled graphs, each with the number of graphs before it."""
    gap = 0
    for span in sorted(_list_inside(step), key=lambda span: span.begin_us):
        gap += span.name.startswith(_GRAPH)
        if span.find(_GRAPH) is None:
            yield gap, span


def _measure_frames(step: Span, contexts: list[Any]) -> list[TracedFrame]:
    """Return the skipped frames of a step."""
    shares: dict[str, Counter[int]] = defaultdict(Counter)
    calls: Counter[str] = Counter()
    for gap, span in _list_by_gap(step):
        frame = span.find(_FRAME)
        if frame is not None:
            calls[frame.name] += span is frame
            shares[frame.name][gap] += round(1000 * span.self_us)
    return [
        TracedFrame(
            compile_id=_name_compile(contexts[int(name.rpartition(" ")[2])]),
            call_count=calls[name],
            gaps_us=[[gap, _round_us(ns / 1000)] for gap, ns in sorted(each.items())],
        )
        for name, each in sorted(shares.items())
    ]


def _measure_gaps(step: Span, device: list[Span]) -> list[TracedGap]:
    started: dict[Span | None, list[Span]] = defaultdict(list)
    for kernel in device:
        if kernel.category == "kernel":  # a copy to the host disappears with the break
            started[kernel.parent].append(kernel)
    operations: dict[int, list[Span]] = defaultdict(list)
    host_us: dict[int, float] = defaultdict(float)
    eager_us: dict[int, float] = defaultdict(float)
    for gap, span in _list_by_gap(step):
        host_us[gap] += span.self_us
        eager_us[gap] += span.self_us if span.kind == "eager" else 0.0
        if span.category == "cpu_op" and any(inner in started for inner in span.children):
            operations[gap].append(span)
    if not device:  # on a CPU the operation itself computes, which stays
        return [
            TracedGap(
                position=gap,
                host_us=_round_us(host_us[gap]),
                kernel_count=0,
                library_count=0,
                library_host_us=_round_us(us),
                library_us=0.0,
                group_count=0,
                fused_us=0.0,
            )
            for gap, us in sorted(eager_us.items())
            if us
        ]
    return [
        _fuse_operations(gap, host_us[gap], each, started)
        for gap, each in sorted(operations.items())
    ]


def _fuse_operations(
    gap: int, host_us: float, operations: list[Span], started: dict[Span | None, list[Span]]
) -> TracedGap:
    """Return the time that operations would take if compiled: library calls, and between two of
    them one kernel as long as the longest one there.
    """
    library_count = group_count = 0
    library_us = fused_us = longest_us = 0.0
    calls: set[Span] = set()
    is_open = False
    for operation in operations:
        kernels = [kernel for inner in operation.children for kernel in started[inner]]
        took_us = sum(kernel.end_us - kernel.begin_us for kernel in kernels)
        if operation.name.startswith(_LIBRARY):
            library_count += 1
            library_us += took_us
            fused_us, longest_us, is_open = fused_us + longest_us, 0.0, False
            calls.add([span for span in operation.ancestors() if span.kind == "eager"][-1])
        else:
            group_count += not is_open
            longest_us, is_open = max(longest_us, took_us), True
    return TracedGap(
        position=gap,
        host_us=_round_us(host_us),
        kernel_count=len(operations),
        library_count=library_count,
        library_host_us=_round_us(sum(call.end_us - call.begin_us for call in calls)),
        library_us=_round_us(library_us),
        group_count=group_count,
        fused_us=_round_us(fused_us + longest_us),
    )


def _count_kernels(spans: list[Span], call_count: int) -> list[KernelTime]:
    """Return kernels per call by name, longest first."""
    times: dict[str, list[float]] = defaultdict(list)
    for span in spans:
        times[span.name].append(span.end_us - span.begin_us)
    ranked = sorted(times.items(), key=lambda item: (-sum(item[1]), item[0]))
    return [
        KernelTime(
            name=name, count=_round_us(len(each) / call_count), us=_round_us(sum(each) / call_count)
        )
        for name, each in ranked[:MAX_KERNELS]
    ]


def _choose_drawn_spans(step: Span, host: list[Span], device: list[Span]) -> list[TracedSpan]:
    """Return the longest spans of a step to draw: its own on the host, those of other threads
    meanwhile, and those it started on the device.
    """
    inside = [span for span in host if step.begin_us <= span.begin_us < step.end_us]
    launches = set(inside)
    started = [span for span in device if span.parent in launches]
    longest = heapq.nlargest(
        MAX_SPANS, inside + started, key=lambda span: span.end_us - span.begin_us
    )
    return [
        TracedSpan(
            name=span.name[:200],
            kind=span.kind or "device",
            lane=f"GPU stream {span.thread}" if not span.kind else f"host thread {span.thread}",
            depth=sum(1 for _ in span.ancestors()) - 1 if span.kind else 0,
            begin_us=_round_us(span.begin_us - step.begin_us),
            duration_us=_round_us(span.end_us - span.begin_us),
        )
        for span in sorted(longest, key=lambda span: (span.begin_us, -span.end_us))
    ]


def _rounded_median(values: Iterable[float]) -> float | None:
    known = list(values)
    return _round_us(median(known)) if known else None


def _round_us(value: float) -> float:
    return round(value, 1)
