"""A run's CUDA graphs by function, by reason to record them, and as trees of paths."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from compileboard.app.core.format import format_bytes, format_duration, format_plural
from compileboard.app.core.labels import Label, describe_cuda_graph_status
from compileboard.app.core.page import Page
from compileboard.app.core.run_cache import cached_for_run
from compileboard.app.cuda_graphs.run_queries import (
    MAX_GRAPHS,
    CudaGraph,
    MovedInput,
    list_all,
)
from compileboard.app.runs.advice import RunVerdict
from compileboard.app.runs.failures import CudagraphSkip, list_cudagraph_skips
from compileboard.app.runs.model import MAX_SKIPS
from compileboard.app.runs.rows import RunRow
from compileboard.collectors.fixes.cudagraph_fixes import (
    MANY_SIZES,
    suggest_recorded_again,
)
from compileboard.collectors.fixes.fix import Fix
from compileboard.collectors.store.run_causes import find_first_call

MAX_FUNCTIONS = 200
MAX_REASONS = 100
MAX_NODES = 300
MAX_LEVELS = 12  # Deeper branches would be too far to the right to be read.
AFTER_ANOTHER = Label(
    "Called after another graph", "quiet", "A graph belongs to a place in the path of graphs."
)
SEVERAL_SIZES = Label("Several sizes", "quiet", "Each size of its inputs is a graph of its own.")
MIN_SIZES = 4
FunctionKey = tuple[str, int, int]  # process, tree, function


def _function_key(graph: CudaGraph) -> FunctionKey:
    return graph.process_id, graph.tree, graph.graph_function


@dataclass(frozen=True)
class FunctionGraphs:
    """Warm-ups and recordings of one function of a tree.

    A compile has several functions if sizes vary or its graph is split into partitions; this is
    function `place` of `place_count`.
    """

    graphs: tuple[CudaGraph, ...]
    place: int
    place_count: int
    skip_reasons: tuple[str, ...] = ()
    called_at: str | None = None

    @property
    def first(self) -> CudaGraph:
        return self.graphs[0]

    @cached_property
    def recordings(self) -> list[CudaGraph]:
        return [graph for graph in self.graphs if graph.stage == "recording"]

    @property
    def warm_up_count(self) -> int:
        return len(self.graphs) - len(self.recordings)

    @property
    def again_count(self) -> int:
        """Return how often it was recorded because no earlier graph there could be replayed."""
        return sum(graph.status is not None for graph in self.recordings)

    @property
    def place_only_count(self) -> int:
        """Return how often it was recorded because it was called after another graph."""
        return max(len(self.recordings) - 1 - self.again_count, 0)

    @property
    def recording_us(self) -> int | None:
        return _sum_us(self.recordings)

    @property
    def last(self) -> CudaGraph | None:
        return self.recordings[-1] if self.recordings else None


@dataclass(frozen=True)
class RecordingReason:
    """Recordings of one function, in all processes, for one reason. `status` is torch's name of the
    reason.
    """

    example: CudaGraph
    status: str | None
    why: Label
    inputs: tuple[MovedInput, ...]
    input_count: int
    count: int
    duration_us: int | None
    fixes: tuple[Fix, ...]
    called_at: str | None = None


@dataclass(frozen=True)
class PathNode:
    graph: CudaGraph
    # Of its children, the most that are of one function, where there are several.
    fan_out: int
    fan_out_function: str | None

    @property
    def why(self) -> Label | None:
        """Return the reason for which it was recorded again."""
        return None if self.graph.status is None else describe_cuda_graph_status(self.graph.status)

    @property
    def memory_bytes(self) -> int:
        before, after = self.graph.reserved_before_bytes, self.graph.reserved_after_bytes
        return 0 if before is None or after is None else after - before


@dataclass(frozen=True)
class PathSegment:
    """A chain of graphs without branches, then the paths that branch off after the last one."""

    nodes: tuple[PathNode, ...]
    branches: tuple[PathSegment, ...]
    is_cut: bool = False  # paths below are not listed


@dataclass(frozen=True)
class GraphTree:
    process: str
    tree: int
    device: int | None
    graph_count: int
    again_count: int
    duration_us: int | None
    longest_path: int
    fan_out: int  # The number of graphs that begin a path.
    fan_out_function: str | None
    segments: tuple[PathSegment, ...]
    cut_count: int


@dataclass(frozen=True)
class CudaGraphsScreen:
    functions: Sequence[FunctionGraphs]
    function_count: int
    reasons: Sequence[RecordingReason]
    reason_count: int
    trees: Sequence[GraphTree]
    skips: Page[CudagraphSkip]
    verdict: RunVerdict
    graph_count: int

    @property
    def is_cut(self) -> bool:
        return self.graph_count == MAX_GRAPHS


def build_cuda_graphs(reader: sqlite3.Connection, run: RunRow) -> CudaGraphsScreen:
    graphs = cached_for_run(reader, run.id, list_all)
    skips = list_cudagraph_skips(reader, run.id, limit=MAX_SKIPS)
    functions = list_functions(graphs, skips.rows)
    again = list_reasons(functions)

    def find_call(graph: CudaGraph) -> str | None:
        return find_first_call(reader, run.id, graph.file, graph.function)

    return CudaGraphsScreen(
        functions=[
            replace(function, called_at=find_call(function.first))
            for function in functions[:MAX_FUNCTIONS]
        ],
        function_count=len(functions),
        reasons=[
            replace(reason, called_at=find_call(reason.example)) for reason in again[:MAX_REASONS]
        ],
        reason_count=len(again),
        trees=list_trees(graphs),
        skips=skips,
        verdict=judge_cuda_graphs(functions, describe_last(graphs, run)),
        graph_count=len(graphs),
    )


def list_functions(
    graphs: Iterable[CudaGraph], skips: Iterable[CudagraphSkip] = ()
) -> list[FunctionGraphs]:
    """Group graphs by function: functions re-recorded most often first, then by time."""
    by_function: dict[FunctionKey, list[CudaGraph]] = {}
    for graph in graphs:
        by_function.setdefault(_function_key(graph), []).append(graph)
    reasons: dict[int, dict[str, None]] = {}
    for skip in skips:
        if skip.compile_key is not None:
            reasons.setdefault(skip.compile_key, {})[skip.reason] = None
    counts = Counter(_compile_key(group[0]) for group in by_function.values())
    places: Counter[object] = Counter()
    functions = []
    for group in by_function.values():
        first = group[0]
        places[_compile_key(first)] += 1
        functions.append(
            FunctionGraphs(
                tuple(group),
                places[_compile_key(first)],
                counts[_compile_key(first)],
                tuple(reasons.get(first.compile_key or 0, ())),
            )
        )
    return sorted(
        functions, key=lambda function: (-function.again_count, -(function.recording_us or 0))
    )


def _compile_key(graph: CudaGraph) -> tuple[object, ...]:
    return graph.process_id, graph.tree, graph.compile_key, graph.compile_id, graph.mode


def list_reasons(functions: Sequence[FunctionGraphs]) -> list[RecordingReason]:
    """List the reasons for which functions have several graphs: graphs that could not be replayed
    first, then calls after another graph, each by frequency.
    """
    groups: dict[tuple[object, ...], list[CudaGraph]] = {}
    for function in functions:
        for number, graph in enumerate(function.recordings):
            if graph.status is None and number == 0:
                continue
            names = [moved.name for reason in graph.reasons[-1:] for moved in reason.inputs]
            place = (graph.file, graph.line, graph.function, graph.compile_id, graph.mode)
            groups.setdefault((place, graph.status, *names), []).append(graph)
    reasons = []
    for group in groups.values():
        example = group[0]
        newest = example.reasons[-1] if example.reasons else None
        reasons.append(
            RecordingReason(
                replace(example, process=""),
                example.status,
                describe_cuda_graph_status(example.status) if example.status else AFTER_ANOTHER,
                newest.inputs if newest else (),
                newest.input_count if newest else 0,
                len(group),
                _sum_us(group),
                suggest_recorded_again(example.status) if example.status else (),
            )
        )
    return sorted(
        [*reasons, *_list_sizes(functions)],
        key=lambda reason: (reason.status is None, -reason.count, -(reason.duration_us or 0)),
    )


def _list_sizes(functions: Sequence[FunctionGraphs]) -> Iterator[RecordingReason]:
    """Yield compiles that torch recorded for several sizes, as one function per size.

    Partitions of a graph are functions of one compile too, but they are recorded in one call.
    """
    compiles: dict[tuple[object, ...], list[CudaGraph]] = {}
    for function in functions:
        for graph in function.recordings[:1]:
            compiles.setdefault(_compile_key(graph), []).append(graph)
    for graphs in compiles.values():
        if len({graph.call_count for graph in graphs}) >= MIN_SIZES:
            example, fixes = replace(graphs[0], process=""), suggest_recorded_again(MANY_SIZES)
            time_us = _sum_us(graphs)
            yield RecordingReason(example, None, SEVERAL_SIZES, (), 0, len(graphs), time_us, fixes)


def judge_cuda_graphs(functions: Sequence[FunctionGraphs], note: str) -> RunVerdict:
    again = sum(function.again_count for function in functions)
    tone = "warn" if again else "good" if any(row.recordings for row in functions) else "quiet"
    return RunVerdict(tone, describe_functions(functions), note, again or None)


def describe_functions(functions: Sequence[FunctionGraphs]) -> str:
    recorded = [function for function in functions if function.recordings]
    if not recorded:
        return "No CUDA graph was recorded: functions were only warmed up."
    has = "has" if len(recorded) == 1 else "have"
    count = sum(len(function.recordings) for function in recorded)
    again = sum(function.again_count for function in recorded)
    return (
        f"{format_plural(len(recorded), 'function')} {has} CUDA graphs: "
        f"{format_plural(count, 'recording')}, "
        + (f"{again} of them again because no graph fitted." if again else "none of them again.")
    )


def describe_last(graphs: Sequence[CudaGraph], run: RunRow) -> str:
    """Describe when the last graph was recorded, how long recording took, and the memory used."""
    recordings = [graph for graph in graphs if graph.stage == "recording"]
    parts = []
    if recordings:
        last = recordings[-1]
        call = "" if last.call_count is None else f" call {last.call_count:,} of compiled functions"
        process = f" in {last.process}" if last.process else ""
        end = (
            f" and {format_duration(run.ended_us - last.time_us)} before its end"
            if run.ended_us is not None and run.ended_us > last.time_us
            else ""
        )
        start = f"{format_duration(last.time_us - run.started_us)} after the run's start"
        parts.append(f"Stable since{call}{process}{',' if call else ''} {start}{end}.")
        parts.append(f"Recording took {format_duration(_sum_us(recordings))}.")
    before, after = _sum_memory(graphs)
    if before is not None and after is not None:
        parts.append(
            f"torch's allocator held {format_bytes(before)} before the first warm-up and "
            f"{format_bytes(after)} after the last recording."
        )
    return " ".join(parts)


def _sum_memory(graphs: Sequence[CudaGraph]) -> tuple[int | None, int | None]:
    """Return the memory that torch's allocators held before the first graph and after the last,
    summed over processes and devices.
    """
    first: dict[tuple[str, int | None], int | None] = {}
    last: dict[tuple[str, int | None], int | None] = {}
    for graph in graphs:
        key = graph.process_id, graph.device
        first.setdefault(key, graph.reserved_before_bytes)
        last[key] = graph.reserved_after_bytes
    return _sum_known(first.values()), _sum_known(last.values())


def _sum_us(graphs: Iterable[CudaGraph]) -> int | None:
    return _sum_known(graph.duration_us for graph in graphs)


def _sum_known(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


@dataclass
class _Paths:
    """The recordings of one tree by their parents, and how many more may be listed."""

    children: Mapping[int | None, Sequence[CudaGraph]]  # None: those that begin a path
    capacity: int = field(default=MAX_NODES)

    def list_segments(self, graphs: Sequence[CudaGraph], level: int) -> Iterator[PathSegment]:
        for graph in graphs:
            if self.capacity <= 0:
                return
            yield self._follow(graph, level)

    def _follow(self, graph: CudaGraph, level: int) -> PathSegment:
        nodes = []
        while True:
            self.capacity -= 1
            below = self._list_children(graph)
            nodes.append(PathNode(graph, *measure_fan_out(below)))
            if len(below) != 1 or self.capacity <= 0:
                break
            (graph,) = below
        branches: tuple[PathSegment, ...] = ()
        if level < MAX_LEVELS:
            branches = tuple(self.list_segments(below, level + 1))
        return PathSegment(tuple(nodes), branches, is_cut=len(branches) < len(below))

    def _list_children(self, graph: CudaGraph) -> Sequence[CudaGraph]:
        return () if graph.graph is None else self.children.get(graph.graph, ())


def list_trees(graphs: Iterable[CudaGraph]) -> list[GraphTree]:
    """Return the trees of recorded graphs: one per device and thread of a process."""
    by_tree: dict[tuple[str, int], list[CudaGraph]] = {}
    for graph in graphs:
        if graph.stage == "recording":
            by_tree.setdefault((graph.process_id, graph.tree), []).append(graph)
    capacity = MAX_NODES
    trees: list[GraphTree] = []
    for group in by_tree.values():
        numbers = {graph.graph for graph in group}
        children: dict[int | None, list[CudaGraph]] = {}
        for graph in group:
            parent = graph.parent_graph if graph.parent_graph in numbers else None
            children.setdefault(parent, []).append(graph)
        roots = children.get(None, [])
        paths = _Paths(children, capacity)
        segments = tuple(paths.list_segments(roots, 0))
        listed = capacity - paths.capacity
        capacity = paths.capacity
        trees.append(
            GraphTree(
                group[0].process,
                group[0].tree,
                group[0].device,
                len(group),
                sum(graph.status is not None for graph in group),
                _sum_us(group),
                max(graph.depth for graph in group) + 1,
                *measure_fan_out(roots),
                segments,
                max(len(group) - listed, 0),
            )
        )
    return trees


def measure_fan_out(graphs: Sequence[CudaGraph]) -> tuple[int, str | None]:
    """Return the largest number of graphs of one function, and its name; 0 if every graph has a
    function of its own.
    """
    counts = Counter(graph.graph_function for graph in graphs)
    if not counts:
        return 0, None
    number, count = counts.most_common(1)[0]
    if count < 2:
        return 0, None
    return count, next(graph.function for graph in graphs if graph.graph_function == number)
