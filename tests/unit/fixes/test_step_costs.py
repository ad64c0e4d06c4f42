"""What breaks cost a step, of windows with times that are easy to follow."""

from __future__ import annotations

from typing import Any

import pytest

from compileboard.collectors.contract.shapes import Step, StepGraph, TracedSteps
from compileboard.collectors.fixes.step_costs import dump_costs, find_usual_step, load_costs

MB = 1 << 20


def graph(number: int, compile_id: str, phase: str = "forward", moved: int = 0) -> StepGraph:
    return StepGraph(
        number=number, phase=phase, compile_id=compile_id, input_bytes=moved, shared_bytes=0
    )


def step(graphs: list[int], call: list[float], after: list[float] | None, **more: Any) -> Step:
    spans: Any = {"call_us": call, "after_us": after}
    own: dict[str, Any] = {"compiled": False, "function": None, "device": None, "host": spans}
    return Step(graph_numbers=graphs, **{**own, **more})


def trace(**more: Any) -> TracedSteps:
    names = ("host", "graphs", "gaps", "frames", "eager_kernels", "spans")
    own: dict[str, Any] = {name: [] for name in names}
    return TracedSteps(step_count=3, step_us=200.0, **{**own, **more})


TWO = [graph(0, "0/0", moved=0), graph(1, "1/0", moved=100 * MB)]
CALL = [20.0, 50.0, 30.0, 80.0, 20.0]  # 200 µs, a gap of 30 between two graphs


def test_the_usual_step_is_the_one_that_most_steps_are() -> None:
    others = [step([0], [5.0, 5.0, 5.0], [1.0]), step([0, 1], CALL, [9.0], compiled=True)]
    usual = find_usual_step(TWO, [*others, step([0, 1], CALL, [10.0]), step([0, 1], CALL, None)])
    assert usual is not None
    assert (usual.step_count, usual.other_count) == (2, 2)
    assert (usual.call_us, usual.period_us) == (200.0, 210.0)
    assert [part.graph and part.graph["number"] for part in usual.call] == [None, 0, None, 1, None]


def test_steps_without_graphs_are_told_apart_by_their_function() -> None:
    steps = [step([], [us], None, function=name) for us, name in ((5.0, "f"), (9.0, "g"), (5, "f"))]
    usual = find_usual_step([], steps)
    assert usual is not None
    assert (usual.function, usual.step_count, usual.call_us) == ("f", 2, 5.0)


def test_there_is_no_usual_step_where_each_one_compiled() -> None:
    assert find_usual_step(TWO, [step([0, 1], CALL, None, compiled=True)]) is None
    assert find_usual_step([], []) is None


@pytest.mark.parametrize(
    ("call", "after"), [(CALL[1:], None), (CALL[:3], [10.0]), ([*CALL, 1.0, 1.0], None)]
)
def test_a_step_that_lacks_a_time_is_refused(call: list[float], after: list[float] | None) -> None:
    with pytest.raises(ValueError, match="times of a step of 2 graphs"):
        find_usual_step(TWO, [step([0, 1], call, after)])


def cost(steps: list[Step], outcomes: dict[str, str], traced: TracedSteps | None = None, **of: Any):
    usual = find_usual_step(of.pop("graphs", TWO), steps)
    assert usual is not None
    return load_costs(dump_costs(usual, traced, of.get("bandwidth"))).estimate(outcomes)


def test_a_resumed_break_costs_the_gap_behind_its_graph() -> None:
    (found,) = cost([step([0, 1], CALL, [10.0])], {"0/0": "resumed"})
    assert (found.compile_id, found.call_count, found.us) == ("0/0", 1, 30.0)


def test_a_break_behind_the_last_graph_costs_the_rest_of_the_call() -> None:
    (found,) = cost([step([0, 1], CALL, [10.0])], {"1/0": "resumed"})
    assert (found.compile_id, found.us) == ("1/0", 20.0)


def test_a_graph_that_is_called_by_a_break_is_part_of_it() -> None:
    graphs = [*TWO, graph(2, "2/0")]
    call = [20.0, 50.0, 30.0, 80.0, 25.0, 10.0, 20.0]
    (found,) = cost([step([0, 1, 2], call, None)], {"0/0": "resumed"}, graphs=graphs)
    assert found.us == 30.0 + 25.0


def traced_graph(number: int, kernel: str) -> dict[str, Any]:
    entry = {"call_us": 50.0, "wrapper_us": 10.0, "entry_us": 20.0, "guard_us": 5.0}
    ends = {"first_kernel": kernel, "last_kernel": kernel}
    return {"number": number, **entry, **ends, "kernels": []}


@pytest.mark.parametrize(("kernel", "us"), [("triton_poi_fused_0", 2 * 100 * MB), ("gemm", 0)])
def test_memory_counts_where_inductors_own_kernels_meet(kernel: str, us: float) -> None:
    traced = trace(graphs=[traced_graph(0, kernel), traced_graph(1, kernel)])
    (found,) = cost(
        [step([0, 1], CALL, [0.0])], {"0/0": "resumed"}, traced, bandwidth=4_000_000_000_000
    )
    (gap,) = found.gaps
    assert gap.fusion_us == pytest.approx(us / 4e12 / 0.88 * 1e6)
    assert gap.entry_us == 10.0 + 0.5 * 10.0  # the trace is as fast as the step, the GPU idle


def test_what_is_done_in_a_gap_stays_as_compiled_code() -> None:
    eager = {"position": 1, "host_us": 30.0, "kernel_count": 3, "library_count": 1}
    eager |= {"library_host_us": 10.0, "library_us": 2.0, "group_count": 1, "fused_us": 1.0}
    (found,) = cost([step([0, 1], CALL, [0.0])], {"0/0": "resumed"}, trace(gaps=[eager]))
    # A third of the gap is a library's; the two others are one kernel, which takes a third of it.
    assert found.us == 30.0 - 10.0 - 10.0


def test_a_skipped_frame_costs_the_gaps_between_its_graphs() -> None:
    frame = {"compile_id": "5/0", "call_count": 1, "gaps_us": [[0, 9.0], [1, 9.0], [2, 9.0]]}
    (found,) = cost([step([0, 1], CALL, None)], {"5/0": "skipped"}, trace(frames=[frame]))
    assert (found.compile_id, found.us) == ("5/0", 30.0)


def test_a_gap_is_counted_once() -> None:
    frame = {"compile_id": "5/0", "call_count": 1, "gaps_us": [[1, 9.0], [2, 9.0]]}
    graphs = [*TWO, graph(2, "0/0")]
    call = [20.0, 50.0, 30.0, 80.0, 25.0, 10.0, 20.0]
    outcomes = {"5/0": "skipped", "0/0": "resumed"}
    found = cost([step([0, 1, 2], call, None)], outcomes, trace(frames=[frame]), graphs=graphs)
    # The gap behind the broken graph is the break's, the one behind the next is the loop's.
    assert {one.compile_id: one.us for one in found} == {"0/0": 30.0 + 20.0, "5/0": 25.0}


def test_a_skipped_frame_without_graphs_is_entered_once_more() -> None:
    frame = {"compile_id": "5/0", "call_count": 1, "gaps_us": [[0, 90.0]]}
    eager = {"position": 0, "host_us": 100.0, "kernel_count": 10, "library_count": 0}
    eager |= {"library_host_us": 0.0, "library_us": 0.0, "group_count": 1, "fused_us": 60.0}
    traced = trace(frames=[frame], gaps=[eager])
    (slow,) = cost([step([], [100.0], None)], {"5/0": "skipped"}, traced, graphs=[])
    assert slow.us == 100.0 - 60.0  # by its kernels; by the host it would be four times 10 µs
    eager["fused_us"] = 1.0
    (found,) = cost([step([], [100.0], None)], {"5/0": "skipped"}, traced, graphs=[])
    assert found.us == 100.0 - 4 * 10.0


def test_a_break_in_training_splits_the_backward_too() -> None:
    graphs = [*TWO, graph(2, "1/0", "backward"), graph(3, "0/0", "backward")]
    after = [5.0, 60.0, 40.0, 60.0, 5.0]
    (found,) = cost([step([0, 1, 2, 3], CALL, after)], {"0/0": "resumed"}, graphs=graphs)
    assert found.us == 30.0 + 40.0
