"""Timed steps: the parts of the usual step, the cost of each graph break, and a traced step."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated

from compileboard.app.core import fields
from compileboard.app.core.fields import make_facts, title_break
from compileboard.app.core.format import format_duration, format_percent, format_plural
from compileboard.app.core.labels import Phase
from compileboard.app.core.page import Page
from compileboard.app.core.schema import PRIVATE, published
from compileboard.app.runs.advice import RunVerdict
from compileboard.app.steps.run_queries import (
    StepCompile,
    StepWindow,
    find_trials,
    list_compiles,
    list_windows,
)
from compileboard.app.timeline.model import StripLane, StripSpan
from compileboard.collectors.contract.shapes import KernelTime, TracedSpan, TracedSteps
from compileboard.collectors.fixes.fix import TriedFix
from compileboard.collectors.fixes.step_costs import (
    StepCost,
    UsualStep,
    estimate_break_costs,
    find_usual_step,
    load_costs,
)

MAX_PARTS = 200
MAX_KERNELS = 30
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
    """A part of the usual step: a graph's call, or a gap."""

    us: float
    share: float
    compile: StepCompile | None  # The compile of a graph, or of the break before a gap.
    compile_id: str | None
    phase: str | None  # None: a gap
    wrapper_us: float | None = None
    guard_us: float | None = None
    kernel_us: float | None = None
    input_bytes: int = 0  # Inputs that the previous graph wrote.


@dataclass(frozen=True)
class CostRow:
    """The time that one graph break adds to a step, summed over the places where it occurs."""

    example: StepCompile = field(metadata=PRIVATE)
    costs: tuple[StepCost, ...] = field(metadata=PRIVATE)
    break_id: fields.BreakId | None
    compile_ids: Annotated[tuple[str, ...], "Compiles that end at it."]
    call_count: Annotated[int, "How often a step meets it."]
    gap_us: Annotated[float, "Estimate: the gap behind it. Microseconds."]
    entry_us: Annotated[float, "Estimate: to enter the next graph. Microseconds."]
    fusion_us: Annotated[float, "Estimate: memory written and read. Microseconds."]
    estimated_us: Annotated[
        float | None,
        "Estimate of all three; null of a skipped frame whose gain cannot be estimated. "
        "Microseconds.",
    ]
    eager_us: Annotated[
        float | None,
        "Of a skipped frame: the gaps that it runs in, which are not all its own; null otherwise. "
        "Microseconds.",
    ]
    trial: Annotated[
        TriedFix | None, "The trial that measured a step without it; null where none did."
    ]
    saved_us: Annotated[
        float | None,
        "What a trial saved of its step; null without, or without a clear difference. "
        "Microseconds.",
    ]
    share: Annotated[
        float | None,
        "Share of the step: of the trial's own where `saved_us` is known; null if neither is.",
    ]

    @property
    @published
    def title(self) -> Annotated[str, "What breaks the graph."]:
        """Return its title."""
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
    def cost_us(self) -> float:
        """Return the cost of all breaks. A trial that fixes several of them counts once."""
        measured = [row for row in self.costs if row.saved_us is not None]
        tried = {row.trial.new_run_id: row.share or 0.0 for row in measured if row.trial}
        estimated_us = sum(row.estimated_us or 0.0 for row in self.costs if row.saved_us is None)
        return estimated_us + sum(tried.values()) * (self.step.whole_us if self.step else 0.0)

    @property
    def first_function(self) -> str | None:
        """Return the function of the step's first graph; without graphs, the called function."""
        if self.step and self.step.function:
            return self.step.function
        called = [row.compile for row in self.parts if row.phase]
        known = called or [row.example for row in self.costs]
        return known[0].function if known and known[0] else None

    @property
    def title(self) -> str:
        """Return a title that distinguishes it from the run's other windows."""
        window = self.window
        names = (window.process, self.first_function)
        after = f"after {format_plural(window.earlier_count, 'step')}"
        return ", ".join([*filter(None, names), after])

    @property
    def problem(self) -> str | None:
        """Return why the window has no usual step."""
        window = self.window
        if self.step:
            return None
        if self.is_damaged or (window.graphs and not window.steps):
            return "What was recorded of these steps does not fit together."
        if not window.steps:
            return (
                f"The window asked for {format_plural(window.wanted_count, 'call')} of compiled "
                f"functions; {window.earlier_count:,} came before it and none in it. It begins "
                "after three that compiled nothing, or after M with --steps N@M, and looks at "
                "the first one without timing it."
            )
        return (
            f"Each of the {format_plural(len(window.steps), 'step')} compiled something, so none "
            "is a usual one. Start later: --steps 40@1000 begins after 1000 calls."
        )

    @property
    def has_unknown(self) -> bool:
        return any(row.share is None for row in self.costs)

    @property
    def is_measured(self) -> bool:
        steps = [row.trial.step if row.trial else None for row in self.costs]
        return all(step is not None and step.is_judged for step in steps)

    @property
    def cost_note(self) -> str:
        has_trial = any(row.trial for row in self.costs)
        word = "estimates and trials" if has_trial else "estimates"
        return f"{'measured by trials' if self.is_measured else word}, the dearest first"

    def count_tried(self, trial: TriedFix) -> int:
        """Return how many of the breaks a trial removed."""
        return sum(
            row.trial.new_run_id == trial.new_run_id for row in self.costs if row.trial is not None
        )

    @property
    def slowed(self) -> float | None:
        """Return the factor by which tracing slowed the call."""
        traced = self.window.traced
        if traced is None or self.step is None:
            return None
        return float(traced["step_us"]) / (sum(part.host_us for part in self.step.call) or 1)


@dataclass(frozen=True)
class StepWindowRow(StepWindow):
    """The timed steps of one process."""

    breaks: Annotated[tuple[CostRow, ...], "What graph breaks cost a step, the dearest first."]


def list_window_rows(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 100
) -> Page[StepWindowRow]:
    page = list_windows(reader, run_id, cursor, limit)
    views = load_steps(reader, run_id, page.rows).views
    rows = (StepWindowRow(**vars(view.window), breaks=view.costs) for view in views)
    return Page(tuple(rows), page.next)


def load_steps(
    reader: sqlite3.Connection, run_id: str, windows: Sequence[StepWindow]
) -> StepsScreen:
    if not windows:
        return build_steps((), ())
    return build_steps(windows, list_compiles(reader, run_id), find_trials(reader, run_id))


@dataclass(frozen=True)
class StepsScreen:
    verdict: RunVerdict
    views: tuple[WindowView, ...]
    legend: tuple[Phase, ...] = tuple(HOST_KINDS.values())
    most_parts: int = MAX_PARTS


def build_steps(
    windows: Sequence[StepWindow],
    compiles: Iterable[StepCompile],
    trials: Mapping[str, TriedFix] = MappingProxyType({}),
) -> StepsScreen:
    """Build the steps page. `trials` are those that measured a step without a break, by its
    fingerprint.
    """
    known = _group_compiles(compiles)
    views = tuple(_view(window, _list_before(window, known), trials) for window in windows)
    return StepsScreen(_judge(views), views)


def _group_compiles(compiles: Iterable[StepCompile]) -> Mapping[str, list[StepCompile]]:
    known: dict[str, list[StepCompile]] = defaultdict(list)
    for row in compiles:
        known[row.process_id].append(row)
    return known


def _list_before(
    window: StepWindow, known: Mapping[str, list[StepCompile]]
) -> dict[str, StepCompile]:
    """Return a window's compiles by ID. IDs restart at each reset(), so the newest compile before
    the window's end is used.
    """
    rows = known.get(window.process_id, ())
    return {row.compile_id: row for row in rows if row.started_us <= window.time_us}


def _judge(views: Sequence[WindowView]) -> RunVerdict:
    timed = [view for view in views if view.step]
    if not timed:
        problem = views[0].problem if views else None
        return RunVerdict("quiet", "No usual step was timed.", problem or "", None)
    view = max(timed, key=lambda view: view.cost_us)
    step = view.step
    assert step is not None
    sentence = f"A step takes {format_duration(step.whole_us)}"
    cost_us = view.cost_us
    if round(cost_us) > 0:
        sentence += (
            f"; its graph breaks cost {'a measured' if view.is_measured else 'an estimated'} "
            f"{format_duration(cost_us)} of it "
            f"({format_percent(cost_us / step.whole_us)})"
        )
    if view.has_unknown:
        sentence += "; what skipped frames cost is not known"
    note = f"The median of {format_plural(step.step_count, 'step')}"
    if view.first_function:
        note += f" that begin with {view.first_function}"
    if step.other_count:
        note += f"; {format_plural(step.other_count, 'other step')} called other graphs or compiled"
    if len(view.window.steps) < view.window.wanted_count:
        note += f"; {format_plural(view.window.wanted_count, 'step')} were asked for"
    clock = "on the GPU's own timeline" if view.window.device else "by the host's clock"
    tone = "warn" if round(cost_us) > 0 or view.has_unknown else "good"
    return RunVerdict(tone, f"{sentence}.", f"{note}. Timed {clock}.", None)


def _view(
    window: StepWindow, compiles: Mapping[str, StepCompile], trials: Mapping[str, TriedFix]
) -> WindowView:
    try:
        return _build_view(window, compiles, trials)
    except (ArithmeticError, LookupError, TypeError, ValueError):  # a row that was changed
        return WindowView(window, None, (), (), (), (), (), is_damaged=True)


def _build_view(
    window: StepWindow, compiles: Mapping[str, StepCompile], trials: Mapping[str, TriedFix]
) -> WindowView:
    step = find_usual_step(window.graphs, window.steps)
    traced = window.traced
    return WindowView(
        window=window,
        step=step,
        parts=tuple(_list_parts(window, step, compiles)) if step else (),
        costs=tuple(_list_costs(window, step, compiles, trials)) if step else (),
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
        lanes=tuple(_build_lanes(traced["spans"])) if traced else (),
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
            part.graph["input_bytes"] if place > 1 else 0,
        )


def _list_costs(
    window: StepWindow,
    step: UsualStep,
    compiles: Mapping[str, StepCompile],
    trials: Mapping[str, TriedFix],
) -> Iterable[CostRow]:
    broken = {name: (row.outcome, row.break_id) for name, row in compiles.items() if row.outcome}
    if window.costs is None:
        raise ValueError("the costs of a window with a usual step")
    found = estimate_break_costs(load_costs(window.costs), broken)
    rows = [
        _make_cost(tuple(costs), compiles[costs[0].compile_id], trials, window, step)
        for costs in found.values()
    ]
    return sorted(rows, key=lambda row: -(row.share or 0.0))


def _make_cost(
    costs: tuple[StepCost, ...],
    example: StepCompile,
    trials: Mapping[str, TriedFix],
    window: StepWindow,
    step: UsualStep,
) -> CostRow:
    gaps = [gap for cost in costs for gap in cost.gaps]
    us = sum(gap.us for gap in gaps)
    is_skipped = example.outcome == "skipped"
    estimated_us = None if is_skipped and round(us) <= 0 else us
    whole_us = step.whole_us or 1
    trial = trials.get(example.fingerprint or "")
    tried = trial.step if trial and trial.step and not trial.step.is_noise else None
    return CostRow(
        example=example,
        costs=costs,
        break_id=example.break_id,
        compile_ids=tuple(cost.compile_id for cost in costs),
        call_count=sum(cost.call_count for cost in costs),
        gap_us=sum(gap.gap_us for gap in gaps),
        entry_us=sum(gap.entry_us for gap in gaps),
        fusion_us=sum(gap.fusion_us for gap in gaps),
        estimated_us=estimated_us,
        eager_us=_sum_gaps(window, step, costs) if is_skipped else None,
        trial=trial,
        saved_us=tried.saved_us if tried else None,
        share=tried.saved_us / (tried.base_us or 1)
        if tried
        else None
        if estimated_us is None
        else estimated_us / whole_us,
    )


def _sum_gaps(window: StepWindow, step: UsualStep, costs: Iterable[StepCost]) -> float:
    """Return the time of the gaps in which skipped frames run."""
    skipped = {cost.compile_id for cost in costs}
    frames = window.traced["frames"] if window.traced else ()
    own = (frame["gaps_us"] for frame in frames if frame["compile_id"] in skipped)
    places = {2 * int(place) for gaps in own for place, _us in gaps}
    return sum(step.call[place].us for place in places if place < len(step.call))


def _rank_kernels(traced: TracedSteps, step: UsualStep) -> Iterable[KernelTime]:
    """Return a step's kernels, longest first, including those outside compiled graphs."""
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
    return [KernelTime(name=name, count=count, us=us) for name, (count, us) in ranked[:MAX_KERNELS]]


@dataclass(frozen=True)
class WrapperTime:
    """Time that AOTAutograd's wrappers of a graph take in one call, from traced steps."""

    forward_us: Annotated[float | None, "Around the forward, or an inference graph. Microseconds."]
    backward_us: Annotated[float | None, "Around the backward. Microseconds."]

    @property
    def whole_us(self) -> float:
        return (self.forward_us or 0.0) + (self.backward_us or 0.0)


def find_wrapper_times(
    windows: Sequence[StepWindow], compiles: Iterable[StepCompile]
) -> dict[int, WrapperTime]:
    """Return the time of the wrappers by compile, from the newest window that traced it."""
    times: dict[int, dict[str, float]] = defaultdict(dict)
    known = _group_compiles(compiles)
    for window in windows:
        before = _list_before(window, known)
        traced = {row["number"]: row for row in window.traced["graphs"]} if window.traced else {}
        for graph in window.graphs:
            row, seen = before.get(graph["compile_id"] or ""), traced.get(graph["number"])
            if row is not None and seen is not None and seen["wrapper_us"] is not None:
                times[row.key][graph["phase"]] = seen["wrapper_us"]
    return {
        key: WrapperTime(phases.get("forward"), phases.get("backward"))
        for key, phases in times.items()
    }


def find_kernel_times(
    windows: Sequence[StepWindow], process_id: str, compile_id: str | None
) -> dict[tuple[bool, str], float]:
    """Return the duration of one launch of each kernel of a compile in the newest traced steps, in
    microseconds.

    Keys are whether it is in the backward, where inductor numbers kernels anew, and the name.
    """
    found: dict[tuple[bool, str], float] = {}
    for window in windows:
        if window.process_id != process_id or window.traced is None:
            continue
        is_backward = {
            row["number"]: row["phase"] == "backward"
            for row in window.graphs
            if row["compile_id"] == compile_id
        }
        for graph in window.traced["graphs"]:
            if graph["number"] in is_backward:
                for kernel in graph["kernels"]:
                    key = is_backward[graph["number"]], kernel["name"]
                    found[key] = kernel["us"] / kernel["count"]
    return found


def _build_lanes(spans: Sequence[TracedSpan]) -> Iterable[StripLane]:
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
