"""Estimate the cost of a program's step, and the share of each graph break and skipped frame.

The estimate uses the times of a window (`run --steps`). Between two graphs is a gap, in which the
work at a break is done. Without the break there is one graph less to enter, and values that the
first graph writes and the next one reads may stay in registers. The sum is the estimated saving per
step; a trial measures it. `python -m benchmarks.steps.predictions` compares estimates with measured
steps without the break.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from statistics import median
from typing import Literal, TypeVar

from compileboard.collectors.contract import shapes
from compileboard.collectors.contract.shapes import (
    Step,
    StepGraph,
    StepSpans,
    TracedFrame,
    TracedGap,
    TracedGraph,
    TracedSteps,
)
from compileboard.collectors.contract.step_orders import find_usual_order, get_order, list_called

BreakId = TypeVar("BreakId")

# Of the memory's peak bandwidth, what a copy reaches on an H200.
REACHED_BANDWIDTH = 0.88
# Of the time that inductor's code takes before its first operation and after its last, the part
# that does not grow with its inputs.
FIXED_ENTRY = 0.5
# To enter a graph takes as long on the host as that many operations.
ENTRY_IN_OPERATIONS = 3
# Of the host's time in a frame without graphs, what calls of libraries may take. With more of it,
# inductor's code, which makes the same calls, was often no faster.
LIBRARY_SHARE = 0.25


@dataclass(frozen=True)
class StepPart:
    """A part of the usual step: a call of a graph, or a gap."""

    us: float  # on the GPU's timeline where there is one
    host_us: float
    graph: StepGraph | None  # None: a gap


@dataclass(frozen=True)
class UsualStep:
    """The medians of the steps that call graphs in the most frequent order."""

    step_count: int  # that took this order
    other_count: int  # that took another, or compiled something
    call_us: float
    period_us: float | None  # from start to start; None of a single step
    call: tuple[StepPart, ...]  # gap, graph, gap, … gap
    after: tuple[StepPart, ...]  # until the next step begins, alike
    function: str | None = None  # of a step without graphs

    @property
    def whole_us(self) -> float:
        return self.call_us if self.period_us is None else self.period_us


@dataclass(frozen=True)
class GapCost:
    """The time saved per step if the graphs around a gap and the work in it were one graph."""

    gap_us: float  # without what stays of it
    entry_us: float = 0.0  # to enter the graph behind it
    fusion_us: float = 0.0  # for what is written and read back

    @property
    def us(self) -> float:
        return self.gap_us + self.entry_us + self.fusion_us


@dataclass(frozen=True)
class StepCost:
    """The estimated cost of a graph break or skipped frame per step."""

    compile_id: str
    call_count: int  # in a step
    gaps: tuple[GapCost, ...]

    @property
    def us(self) -> float:
        return sum(gap.us for gap in self.gaps)


@dataclass(frozen=True)
class BreakCost:
    """The estimated cost of a graph break in each step of a process."""

    us: float
    step_count: int

    @property
    def run_us(self) -> float:
        return self.us * self.step_count


@dataclass(frozen=True)
class RunSteps:
    """The steps of a run's process that takes longest in total."""

    us: float  # the usual one
    count: int  # until the process ends, at the pace of the window
    by_break: Mapping[int, BreakCost]


def find_usual_step(graphs: Sequence[StepGraph], steps: Sequence[Step]) -> UsualStep | None:
    """Return the usual step of a window, None if every step compiled something."""
    order = find_usual_order(steps)
    if order is None:
        return None
    calm = [step for step in steps if not step["compiled"]]
    for step in calm:
        for side in filter(None, (step["host"], step["device"])):
            _check(step, side)
    usual = [step for step in calm if get_order(step) == order]
    spans = [(step["device"] or step["host"], step["host"]) for step in usual]
    after = [(a["after_us"], b["after_us"]) for a, b in spans if a["after_us"] and b["after_us"]]
    periods = [
        sum(one["call_us"]) + sum(one["after_us"]) for one, _host in spans if one["after_us"]
    ]
    by_number = {graph["number"]: graph for graph in graphs}
    called = [by_number[number] for number in order[0]]
    call_count = len(list_called(order))
    return UsualStep(
        step_count=len(usual),
        other_count=len(steps) - len(usual),
        call_us=median(sum(one["call_us"]) for one, _host in spans),
        period_us=median(periods) if periods else None,
        call=_list_parts([(a["call_us"], b["call_us"]) for a, b in spans], called[:call_count]),
        after=_list_parts(after, called[call_count:]) if after else (),
        function=order[2],
    )


def _check(step: Step, side: StepSpans) -> None:
    """Raises ValueError if a time is missing, because later times would then belong to the wrong
    parts.
    """
    call, after = len(side["call_us"]), len(side["after_us"] or ())
    most = 2 * len(step["graph_numbers"]) + 1  # a gap, and a graph and a gap for each
    is_whole = call % 2 and (call + after == most + 1 if after else call <= most)
    if not is_whole:
        raise ValueError(
            f"{call} and {after} times of a step of {len(step['graph_numbers'])} graphs"
        )


def _list_parts(
    times: Sequence[tuple[Sequence[float], Sequence[float]]], called: Sequence[StepGraph]
) -> tuple[StepPart, ...]:
    columns = [list(zip(*side, strict=True)) for side in zip(*times, strict=True)]
    return tuple(
        StepPart(median(us), median(host_us), called[place // 2] if place % 2 else None)
        for place, (us, host_us) in enumerate(zip(*columns, strict=True))
    )


@dataclass(frozen=True)
class FrameCost:
    """The cost of a skipped frame per step, by the gaps that it covers."""

    compile_id: str
    call_count: int
    gaps: Mapping[int, GapCost]


@dataclass(frozen=True)
class WindowCosts:
    """The time that the usual step would save without each gap. There is a gap before each graph
    and after the last.
    """

    compile_ids: Sequence[str | None]  # of the graphs
    gaps: Sequence[GapCost]
    # Between the two backward graphs too, by the gap between the two forward ones:
    backward: Mapping[int, Sequence[GapCost]]
    frames: Sequence[FrameCost]  # that Dynamo may have skipped

    def estimate(self, outcomes: Mapping[str, str]) -> list[StepCost]:
        """Return the costs of breaks per step, the largest first.

        `outcomes` has "resumed" or "skipped" for each compile that ended at a break. Code called at
        a resumed break has its own graphs; the gap after the last of them is part of the break's
        cost too.
        """
        found: dict[str, list[GapCost]] = defaultdict(list)
        calls: Counter[str] = Counter()
        frames = [frame for frame in self.frames if outcomes.get(frame.compile_id) == "skipped"]
        in_frames = {place for frame in frames for place in frame.gaps}
        taken: set[int] = set()  # places of gaps, each of which is counted once
        last: str | None = None
        for place, compile_id in enumerate(self.compile_ids, start=1):
            is_broken = compile_id is not None and outcomes.get(compile_id) == "resumed"
            if is_broken:
                last = compile_id
                calls[compile_id or ""] += 1
            is_between = place < len(self.compile_ids) and place not in in_frames
            if last is not None and (is_broken or is_between):
                taken.add(place)
                found[last] += [self.gaps[place], *self.backward.get(place, ())]
        costs = [StepCost(name, calls[name], tuple(each)) for name, each in found.items()]
        for frame in frames:
            gaps = (frame.gaps[place] for place in sorted(frame.gaps) if place not in taken)
            costs.append(StepCost(frame.compile_id, frame.call_count, tuple(gaps)))
            taken |= frame.gaps.keys()
        return sorted(costs, key=lambda cost: -cost.us)


def cost_window(
    step: UsualStep, traced: TracedSteps | None, peak_bytes_per_s: int | None
) -> WindowCosts:
    trace = _Trace(step, traced)
    gaps = [
        _cost_gap(trace, step.call, place, peak_bytes_per_s)
        for place in range(0, len(step.call), 2)
    ]
    graphs = [part.graph for part in step.call[1::2] if part.graph]
    return WindowCosts(
        compile_ids=[graph["compile_id"] for graph in graphs],
        gaps=gaps,
        backward={
            place: _list_backward(trace, step.after, pair)
            for place, pair in enumerate(pairwise(graphs), start=1)
        },
        frames=[
            _cost_frame(trace, step.call, frame, gaps)
            for frame in (traced["frames"] if traced else ())
            if frame["compile_id"]
        ],
    )


def dump_costs(
    step: UsualStep, traced: TracedSteps | None, peak_bytes_per_s: int | None
) -> shapes.WindowCosts:
    """Convert a window's costs to their stored form."""
    costs = cost_window(step, traced, peak_bytes_per_s)
    return shapes.WindowCosts(
        step_us=step.whole_us,
        usual_count=step.step_count,
        other_count=step.other_count,
        graph_count=len(costs.compile_ids),
        compile_ids=list(costs.compile_ids),
        gaps_us=[[*astuple(gap)] for gap in costs.gaps],
        backward_us=[
            [place, *astuple(gap)] for place, gaps in costs.backward.items() for gap in gaps
        ],
        frames=[
            TracedFrame(
                compile_id=frame.compile_id,
                call_count=frame.call_count,
                gaps_us=[[place, *astuple(frame.gaps[place])] for place in sorted(frame.gaps)],
            )
            for frame in costs.frames
        ],
    )


def load_costs(stored: shapes.WindowCosts) -> WindowCosts:
    """Load a window's costs from their stored form. Raises ValueError if a gap is missing, because
    later gaps would then belong to the wrong graphs.
    """
    sizes = len(stored["compile_ids"]), len(stored["gaps_us"]) - 1
    if {*sizes} != {stored["graph_count"]}:
        raise ValueError(f"{sizes} graphs and gaps of {stored['graph_count']}")
    backward: dict[int, list[GapCost]] = defaultdict(list)
    for place, *parts_us in stored["backward_us"]:
        backward[int(place)].append(GapCost(*parts_us))
    return WindowCosts(
        stored["compile_ids"],
        [GapCost(*parts_us) for parts_us in stored["gaps_us"]],
        backward,
        [_load_frame(frame) for frame in stored["frames"]],
    )


def _load_frame(frame: TracedFrame) -> FrameCost:
    gaps = {int(place): GapCost(*parts_us) for place, *parts_us in frame["gaps_us"]}
    return FrameCost(frame["compile_id"] or "", frame["call_count"], gaps)


def estimate_break_costs(
    costs: WindowCosts, broken: Mapping[str, tuple[str, BreakId]]
) -> dict[BreakId, list[StepCost]]:
    """Return the step costs of each graph break.

    `broken` maps the id of a compile that ended at a break to its outcome and the break's id.
    """
    outcomes = {compile_id: outcome for compile_id, (outcome, _id) in broken.items()}
    found: dict[BreakId, list[StepCost]] = defaultdict(list)
    for cost in costs.estimate(outcomes):
        found[broken[cost.compile_id][1]].append(cost)
    return found


class _Trace:
    """The values that a trace adds to the times of a step. Tracing slows the host, so times are
    scaled.
    """

    def __init__(self, step: UsualStep, traced: TracedSteps | None) -> None:
        self.graphs = {graph["number"]: graph for graph in traced["graphs"]} if traced else {}
        self.gaps = {gap["position"]: gap for gap in traced["gaps"]} if traced else {}
        host_us = sum(part.host_us for part in step.call)
        slowed_us = (traced["step_us"] if traced else host_us) or 1.0
        busy_us = sum(kernel["us"] for kernel in traced["eager_kernels"]) if traced else 0.0
        for part in (*step.call, *step.after):
            if part.graph and part.graph["number"] in self.graphs:
                busy_us += sum(
                    kernel["us"] for kernel in self.graphs[part.graph["number"]]["kernels"]
                )
        # While the GPU is busy, the host's time does not count.
        self.scale = min(1.0, host_us / slowed_us) * max(0.0, 1 - busy_us / (step.whole_us or 1.0))
        paces = [self._find_pace_us(part) for part in (*step.call, *step.after)]
        known = [pace_us for pace_us in paces if pace_us is not None]
        self.pace_us = median(known) if known else None  # of the host, for a compiled kernel

    def _find_pace_us(self, part: StepPart) -> float | None:
        measured = self.graphs.get(part.graph["number"]) if part.graph else None
        if measured is None or part.graph is None:
            return None
        count = sum(kernel["count"] for kernel in measured["kernels"])
        return max(part.host_us - self.find_entry_us(part.graph), 0.0) / count if count else None

    def find_entry_us(self, graph: StepGraph) -> float:
        measured = self.graphs.get(graph["number"])
        if measured is None:
            return 0.0
        wrapper_us = measured["wrapper_us"] or 0.0
        entry_us = measured["entry_us"] or wrapper_us
        return (wrapper_us + FIXED_ENTRY * (entry_us - wrapper_us)) * self.scale


def _cost_gap(
    trace: _Trace, call: Sequence[StepPart], place: int, peak_bytes_per_s: int | None
) -> GapCost:
    gap = call[place]
    after = call[place - 1].graph if place else None
    before = call[place + 1].graph if place + 1 < len(call) else None
    eager = trace.gaps.get(place // 2)
    ends = [_is_own_kernel(trace.graphs, after, "last_kernel")]
    ends.append(_is_own_kernel(trace.graphs, before, "first_kernel"))
    own_us = gap.us - (_estimate_compiled(gap, eager, -any(ends), trace.pace_us) if eager else 0.0)
    if after is None or before is None:
        return GapCost(own_us)
    fusion_us = 0.0
    if peak_bytes_per_s and all(ends):
        moved_bytes = 2 * before["input_bytes"] + before["shared_bytes"]
        fusion_us = moved_bytes / (peak_bytes_per_s * REACHED_BANDWIDTH) * 1e6
    return GapCost(own_us, trace.find_entry_us(before), fusion_us)


def _estimate_compiled(
    gap: StepPart, eager: TracedGap, more_operations: int, pace_us: float | None
) -> float:
    """Return the time that remains of a gap once its work is compiled: library calls, and one
    kernel for the operations between them, at the speed of the host or the GPU.
    """
    took_us = min(gap.us, gap.host_us)
    if pace_us is None:
        pace_us = took_us / (eager["kernel_count"] or 1)
    # A call of a library takes the host as long as before.
    library_us = took_us * min(eager["library_host_us"] / (eager["host_us"] or 1), 1)
    kernels_us = max(eager["group_count"] + more_operations, 0) * pace_us
    return min(gap.us, max(library_us + kernels_us, eager["library_us"] + eager["fused_us"]))


def _is_own_kernel(
    traced: Mapping[int, TracedGraph],
    graph: StepGraph | None,
    place: Literal["first_kernel", "last_kernel"],
) -> bool:
    """Return whether inductor wrote a graph's first or last kernel, so that it can be fused with
    others.
    """
    measured = traced.get(graph["number"]) if graph else None
    return measured is not None and (measured[place] or "").startswith("triton_")


def _list_backward(
    trace: _Trace, after: Sequence[StepPart], graphs: Sequence[StepGraph]
) -> list[GapCost]:
    """Return the gaps between backward graphs, which run in reverse order."""
    compiles = [graph["compile_id"] for graph in graphs]
    costs = []
    for place, (first, second) in enumerate(pairwise(part.graph for part in after[1::2])):
        if first and second and [second["compile_id"], first["compile_id"]] == compiles:
            costs.append(GapCost(after[2 * place + 2].us, trace.find_entry_us(second)))
    return costs


def _cost_frame(
    trace: _Trace, call: Sequence[StepPart], frame: TracedFrame, gaps: Sequence[GapCost]
) -> FrameCost:
    """Return the cost of running a frame uncompiled instead of as one graph."""
    costs = {}
    for place in {int(place) for place, _us in frame["gaps_us"]}:
        eager = trace.gaps.get(place)
        is_between = 0 < place < len(gaps) - 1
        if len(gaps) == 1 and eager:  # without any graph
            is_known = eager["library_host_us"] <= LIBRARY_SHARE * eager["host_us"]
            stays_us = _estimate_compiled(call[0], eager, ENTRY_IN_OPERATIONS, None)
            costs[place] = GapCost(call[0].us - stays_us if is_known else 0.0)
        else:
            costs[place] = gaps[place] if is_between or eager else GapCost(0.0)
    return FrameCost(frame["compile_id"] or "", frame["call_count"], costs)
