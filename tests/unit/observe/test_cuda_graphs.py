"""The hooks of CUDA graphs, with a manager of the form of torch's (2.11, on an H200)."""

from __future__ import annotations

import sys
from collections import Counter
from enum import Enum
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from compileboard.collectors.observe.cuda_graphs import LONGEST, CudaGraphs, get_skip_context
from compileboard.collectors.observe.hook_guard import HookGuard

Status = Enum("Status", "SUCCESS StaticInputIdxMismatch CudagraphManagedIdxMismatch")


class Id(NamedTuple):
    id: int


FUNCTION = Id(3)
COMPILE = SimpleNamespace(compiled_autograd_id=None, frame_id=1, frame_compile_id=0)


class Tensor:
    dtype, shape = "torch.float32", (8, 64)


class Node:
    def __init__(self, number: int, parent: Node | None = None, status: Any = None) -> None:
        self.id, self.parent, self.status = Id(number), parent, status
        placeholders = [SimpleNamespace(name="arg0_1"), SimpleNamespace(name="arg1_1")]
        self.wrapped_function = SimpleNamespace(placeholders=placeholders, id=Id(number))

    def check_invariants(self, inputs: list[Any]) -> Any:
        inputs[:1] = [None]  # as torch does where all is well
        return self.status, lambda: f"{self.status.name}.\ninput name: arg1_1. data pointer changed"


class Manager:
    device_index = 0
    error: Exception | None = None

    def __init__(self, *siblings: Node) -> None:
        self.id_to_mode = {FUNCTION: SimpleNamespace(name="FORWARD")}
        self.id_to_compile_id = {FUNCTION: COMPILE}
        self.warmed_up_functions: set[Any] = set()
        self.children = {FUNCTION: list(siblings)}
        self.roots: dict[Any, list[Node]] = {}
        self.current_node = Node(1, Node(0))

    def _run(self, new_inputs: list[Any], function_id: Any) -> Any:
        child_nodes = self.children
        for child in child_nodes[function_id]:
            status, status_logger = child.check_invariants(list(new_inputs))
            assert status and status_logger
        return self.record_function(new_inputs, function_id)

    def record_function(self, new_inputs: list[Any], function_id: Any) -> Any:
        if self.error is not None:
            raise self.error
        self.current_node = Node(7, self.current_node)
        return new_inputs

    def run_eager(self, new_inputs: list[Any], function_id: Any) -> Any:
        self.warmed_up_functions.add(function_id)
        self.current_node = Node(-1)
        return new_inputs


Events = list[tuple[dict[str, Any], Any]]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    found: Events = []
    graphs = CudaGraphs(
        lambda fields, context: found.append((fields, context)), HookGuard(Counter())
    )
    recording, eager = Manager.record_function, Manager.run_eager
    monkeypatch.setattr(Manager, "record_function", graphs.wrap_recording(recording))
    monkeypatch.setattr(Manager, "run_eager", graphs.wrap_eager(eager))
    return found


def test_a_recording_has_its_place_and_what_did_not_fit_of_each_graph(events: Events) -> None:
    siblings = (
        Node(4, status=Status.StaticInputIdxMismatch),
        Node(5, status=Status.CudagraphManagedIdxMismatch),
    )
    inputs = [Tensor(), Tensor()]
    assert Manager(*siblings)._run(inputs, FUNCTION) is inputs and None not in inputs
    ((fields, context),) = events
    assert (fields["graph"], fields["parent_graph"], fields["depth"]) == (7, 1, 2)
    assert (fields["stage"], fields["mode"], context[1:3]) == ("recording", "forward", [1, 0])
    first, second = fields["reasons"]
    assert first[:2] == [4, "StaticInputIdxMismatch"]
    assert second[:2] == [5, "CudagraphManagedIdxMismatch"]
    assert second[3] == {"arg1_1": ["torch.float32", [8, 64]]}


def test_all_inputs_that_moved_are_counted_beyond_the_text_that_is_kept(events: Events) -> None:
    node = Node(4, status=Status.StaticInputIdxMismatch)
    line = "input name: arg1_1. data pointer changed from 1 to 2. input stack trace: None\n"
    node.check_invariants = lambda inputs: (node.status, lambda: line * 300)  # type: ignore[method-assign]
    Manager(node)._run([Tensor(), Tensor()], FUNCTION)
    ((fields, _context),) = events
    (reason,) = fields["reasons"]
    assert (len(reason[2]), reason[4]) == (LONGEST, 300)


def test_a_function_that_began_a_path_says_why_it_is_recorded_after_another(
    events: Events,
) -> None:
    manager = Manager()  # torch asks no graph at a new place
    manager._run([], FUNCTION)
    manager.roots = {FUNCTION: [Node(4)]}
    manager._run([], FUNCTION)
    manager.current_node.wrapped_function.id = FUNCTION
    manager._run([], FUNCTION)  # the next call of a step
    first, second, third = (fields["reasons"] for fields, _ in events)
    assert (first, third) == ([], [])
    assert second == [[4, "PathNotEnded", "", {}, 0]]


def test_a_function_is_warmed_up_once(events: Events) -> None:
    manager = Manager()
    for _ in range(3):
        manager.run_eager([], FUNCTION)
    assert [(fields["stage"], fields["graph"]) for fields, _ in events] == [("warm_up", -1)]


def test_trees_are_numbered(events: Events) -> None:
    first, second = Manager(), Manager()
    for manager in (first, second, first):
        manager._run([], FUNCTION)
    assert [fields["tree"] for fields, _ in events] == [0, 1, 0]


def test_a_tree_that_was_reset_gives_its_number_to_no_other(events: Events) -> None:
    kept = Manager()
    for manager in (Manager(), kept):
        manager._run([], FUNCTION)
    del manager
    Manager()._run([], FUNCTION)
    assert [fields["tree"] for fields, _ in events] == [0, 1, 2]


def test_what_torch_raises_is_the_programs_and_no_recording(events: Events) -> None:
    manager = Manager()
    manager.error = RuntimeError("out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        manager._run([], FUNCTION)
    assert events == []


def test_a_graph_that_cannot_be_asked_costs_its_reasons_alone(events: Events) -> None:
    broken = Node(4, status=Status.StaticInputIdxMismatch)
    manager = Manager(broken, Node(5, status=Status.StaticInputIdxMismatch))
    manager.children[FUNCTION][1].wrapped_function = None
    manager._run([], FUNCTION)
    assert [fields["reasons"] for fields, _ in events] == [[]]


def test_a_skip_while_a_graph_runs_has_its_compile() -> None:
    class Skipping(Manager):
        def _update(self, function_id: Any) -> Any:
            return get_skip_context(sys._getframe())

    assert Skipping()._update(FUNCTION)[1:3] == [1, 0]
