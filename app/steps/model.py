"""A window of steps: its parts, what breaks cost of it, and one step as it was traced."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compileboard.app.core.fields import make_facts, title_break
from compileboard.app.core.format import format_duration, format_percent, format_plural
from compileboard.app.core.labels import Phase
from compileboard.app.runs.advice import RunVerdict
from compileboard.app.steps.run_queries import StepCompile, StepWindow
from compileboard.app.timeline.model import StripLane, StripSpan
from compileboard.collectors.contract.shapes import KernelTime, TracedSpan, TracedSteps
from compileboard.collectors.fixes.step_costs import (
    StepCost,
    UsualStep,
    estimate_costs,
    find_usual_step,
)

MOST_PARTS = 200
MOST_KERNELS = 30
# What the host does in a step: colour, and what it is.
HOST_KINDS = {
    "guards": Phase("guards", "guards", "phase-dynamo", "evaluating guards"),
    "wrapper": Phase("wrapper", "wrappers", "phase-aot", "AOTAutograd's code around each graph"),
    "graph": Phase("graph", "graphs", "phase-inductor", "compiled code, which starts kernels"),
    "eager": Phase("eager", "eager", "phase-triton", "operations outside compiled graphs"),
    "wait": Phase("wait", "waiting", "phase-restart", "waiting for the GPU: `.item()`, a copy"),
    "python": Phase("python", "Python", "phase-other", "all else, such as skipped frames"),
    "device": Phase("device", "GPU", "phase-cudagraph", "kernels and copies"),
}


@dataclass(frozen=True)
class PartRow:
    """A graph's call in the usual step, or a gap."""

    us: float
    share: float
    compile: StepCompile | None  # of a graph; of a gap, where it follows a break
    compile_id: str | None
    phase: str | None  # None: a gap
    wrapper_us: float | None = None
    guard_us: float | None = None
    kernel_us: float | None = None


@dataclass(frozen=True)
class CostRow:
    """What one graph break adds to a step, summed over the places where it occurs."""

    example: StepCompile
    costs: tuple[StepCost, ...]
    share: float

    @property
    def us(self) -> float:
        return sum(cost.us for cost in self.costs)

    @property
    def call_count(self) -> int:
        return sum(cost.call_count for cost in self.costs)

    @property
    def gap_us(self) -> float:
        return sum(gap.gap_us for cost in self.costs for gap in cost.gaps)

    @property
    def entry_us(self) -> float:
        return sum(gap.entry_us for cost in self.costs for gap in cost.gaps)

    @property
    def fusion_us(self) -> float:
        return sum(gap.fusion_us for cost in self.costs for gap in cost.gaps)

    @property
    def title(self) -> str:
        return title_break(make_facts(vars(self.example)))


@dataclass(frozen=True)
class HostRow:
    phase: Phase
    us: float
    share: float
    call_count: int


@dataclass(frozen=True)
class WindowView:
    window: StepWindow
    step: UsualStep | None
    parts: tuple[PartRow, ...]
    costs: tuple[CostRow, ...]
    host: tuple[HostRow, ...]
    kernels: tuple[KernelTime, ...]
    lanes: tuple[StripLane, ...]
    is_damaged: bool = False

    @property
    def slowed(self) -> float | None:
        """Return by how much tracing slowed the call."""
        traced = self.window.traced
        if traced is None or self.step is None:
            return None
        return float(traced["step_us"]) / (sum(part.host_us for part in self.step.call) or 1)


@dataclass(frozen=True)
class StepsScreen:
    verdict: RunVerdict
    views: tuple[WindowView, ...]
    legend: tuple[Phase, ...] = tuple(HOST_KINDS.values())
    most_parts: int = MOST_PARTS


def build_steps(windows: Sequence[StepWindow], compiles: Iterable[StepCompile]) -> StepsScreen:
    known: dict[str, list[StepCompile]] = defaultdict(list)
    for row in compiles:
        known[row.process_id].append(row)
    views = tuple(
        _view(
            window,
            # Compile IDs restart at each reset(): the newest before the window's end counts.
            {
                row.compile_id: row
                for row in known[window.process_id]
                if row.started_us <= window.time_us
            },
        )
        for window in windows
    )
    return StepsScreen(_judge(views), views)


def _judge(views: Sequence[WindowView]) -> RunVerdict:
    timed = [view for view in views if view.step]
    if not timed:
        return RunVerdict(
            "quiet", "No step was timed.", "Each one compiled something, or none ran.", None
        )
    view = max(timed, key=lambda view: sum(cost.us for cost in view.costs))
    step = view.step
    assert step is not None
    sentence = f"A step takes {format_duration(step.whole_us)}"
    cost_us = sum(cost.us for cost in view.costs)
    if round(cost_us):
        sentence += (
            f"; its graph breaks cost an estimated {format_duration(cost_us)} of it "
            f"({format_percent(cost_us / step.whole_us)})"
        )
    note = f"The median of {format_plural(step.step_count, 'step')}"
    if step.other_count:
        note += f"; {format_plural(step.other_count, 'other step')} called other graphs or compiled"
    clock = "on the GPU's own timeline" if view.window.device else "by the host's clock"
    tone = "warn" if round(cost_us) else "good"
    return RunVerdict(tone, f"{sentence}.", f"{note}. Timed {clock}.", None)


def _view(window: StepWindow, compiles: Mapping[str, StepCompile]) -> WindowView:
    try:
        return _build_view(window, compiles)
    except (ArithmeticError, LookupError, TypeError, ValueError):  # a row that was changed
        return WindowView(window, None, (), (), (), (), (), is_damaged=True)


def _build_view(window: StepWindow, compiles: Mapping[str, StepCompile]) -> WindowView:
    step = find_usual_step(window.graphs, window.steps)
    traced = window.traced
    return WindowView(
        window=window,
        step=step,
        parts=tuple(_list_parts(window, step, compiles)) if step else (),
        costs=tuple(_list_costs(window, step, compiles)) if step else (),
        host=tuple(
            HostRow(
                HOST_KINDS[row["kind"]],
                row["self_us"],
                row["self_us"] / (traced["step_us"] or 1),
                row["call_count"],
            )
            for row in traced["host"]
            if row["kind"] in HOST_KINDS
        )
        if traced
        else (),
        kernels=tuple(_rank_kernels(traced, step)) if traced and step else (),
        lanes=tuple(_draw(traced["spans"])) if traced else (),
    )


def _list_parts(
    window: StepWindow, step: UsualStep, compiles: Mapping[str, StepCompile]
) -> Iterable[PartRow]:
    traced = {row["number"]: row for row in window.traced["graphs"]} if window.traced else {}
    last: StepCompile | None = None
    for place, part in enumerate((*step.call, *step.after)):
        share = part.us / (step.whole_us or 1)
        if part.graph is None:
            broken = last if last and last.outcome and place < len(step.call) else None
            yield PartRow(part.us, share, broken, None, None)
            continue
        compile_id = part.graph["compile_id"]
        last = compiles.get(compile_id or "")
        seen = traced.get(part.graph["number"])
        yield PartRow(
            part.us,
            share,
            last,
            compile_id,
            part.graph["phase"],
            seen["wrapper_us"] if seen else None,
            seen["guard_us"] if seen else None,
            sum(kernel["us"] for kernel in seen["kernels"]) if seen and window.device else None,
        )


def _list_costs(
    window: StepWindow, step: UsualStep, compiles: Mapping[str, StepCompile]
) -> Iterable[CostRow]:
    outcomes = {name: row.outcome for name, row in compiles.items() if row.outcome}
    found: dict[str, list[StepCost]] = defaultdict(list)
    for cost in estimate_costs(step, outcomes, window.traced, window.peak_bytes_per_s):
        found[str(compiles[cost.compile_id].break_id)].append(cost)
    rows = [
        CostRow(
            compiles[costs[0].compile_id],
            tuple(costs),
            sum(cost.us for cost in costs) / (step.whole_us or 1),
        )
        for costs in found.values()
    ]
    return sorted(rows, key=lambda row: -row.us)


def _rank_kernels(traced: TracedSteps, step: UsualStep) -> Iterable[KernelTime]:
    """Return the kernels of a step by their time, those outside graphs among them."""
    by_graph = {row["number"]: row["kernels"] for row in traced["graphs"]}
    called = [part.graph for part in (*step.call, *step.after) if part.graph]
    times: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for kernels in [
        traced["eager_kernels"],
        *(by_graph.get(graph["number"], []) for graph in called),
    ]:
        for kernel in kernels:
            times[kernel["name"]][0] += kernel["count"]
            times[kernel["name"]][1] += kernel["us"]
    ranked = sorted(times.items(), key=lambda item: (-item[1][1], item[0]))
    return [
        KernelTime(name=name, count=count, us=us) for name, (count, us) in ranked[:MOST_KERNELS]
    ]


def find_kernel_times(
    windows: Sequence[StepWindow], process_id: str, compile_id: str | None
) -> dict[str, float]:
    """Return what one launch of each kernel of a compile took in traced steps, in microseconds.

    Inductor numbers kernels in each graph: a name that both a forward and a backward have is left
    out.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for window in windows:
        if window.process_id != process_id or window.traced is None:
            continue
        numbers = {row["number"] for row in window.graphs if row["compile_id"] == compile_id}
        for graph in window.traced["graphs"]:
            if graph["number"] in numbers:
                for kernel in graph["kernels"]:
                    found[kernel["name"]].append(kernel["us"] / kernel["count"])
    return {name: times[0] for name, times in found.items() if len(times) == 1}


def _draw(spans: Sequence[TracedSpan]) -> Iterable[StripLane]:
    whole_us = max((span["begin_us"] + span["duration_us"] for span in spans), default=0) or 1
    lanes: dict[str, list[TracedSpan]] = defaultdict(list)
    for span in spans:
        lanes[span["lane"]].append(span)
    # The program's own thread first, the GPU last.
    ordered = sorted(lanes.items(), key=lambda lane: (lane[0].startswith("GPU"), -len(lane[1])))
    for lane, each in ordered:
        first_depth = min(span["depth"] for span in each)
        drawn = tuple(
            StripSpan(
                row=span["depth"] - first_depth,
                start=round(100 * span["begin_us"] / whole_us, 3),
                width=max(round(100 * span["duration_us"] / whole_us, 3), 0.05),
                color=HOST_KINDS.get(span["kind"], HOST_KINDS["python"]).color,
                name=span["name"],
                about=f"{span['name']}, {format_duration(span['duration_us'])}",
            )
            for span in each
        )
        rows = 1 + max(span.row for span in drawn)
        yield StripLane(lane, rows, drawn, len(drawn))
