"""torch's minifier makes a graph smaller, with a compiler that is wrong on demand."""

from __future__ import annotations

import copy
import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from compileboard.collectors.repro import findings, judging  # noqa: E402
from compileboard.collectors.repro import repro as failure  # noqa: E402
from compileboard.collectors.repro.graph_loading import list_calls  # noqa: E402
from compileboard.collectors.repro.judging import Judge  # noqa: E402
from compileboard.collectors.repro.minify.torch_minifier import (  # noqa: E402
    GraphSearch,
    QueryLog,
    Question,
    SmallestGraph,
)
from compileboard.collectors.repro.repro import (  # noqa: E402
    Failure,
    raised,
)
from compileboard.collectors.repro.trials import (  # noqa: E402
    OK,
    RAISED,
    ForkedRunner,
    Outcome,
    TrialLimits,
    list_errors,
)

ATAN, SIN, COS = torch.ops.aten.atan.default, torch.ops.aten.sin.default, torch.ops.aten.cos.default


class TrialsHere:
    """Trials in this process, counted: what they change is copied before."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.limits, self.count, self._seconds = TrialLimits(60), 0, seconds

    def run(
        self, function: Callable[..., Any], *arguments: Any, limits: TrialLimits | None = None
    ) -> Outcome:
        self.count += 1
        time.sleep(self._seconds)
        try:
            return Outcome(OK, function(*copy.deepcopy(arguments)))
        except Exception as error:
            return Outcome(RAISED, errors=list_errors(error))


def _compile_with(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any, Any], Any]) -> None:
    """Let a compiled graph run in eager, each node's value passed through `change`."""

    class Changed(torch.fx.Interpreter):
        def run_node(self, node: Any) -> Any:
            return change(node, super().run_node(node))

    def compile_graph(module: Any, inputs: Any, how: Judge) -> Any:
        return lambda values: Changed(module).run(*values)

    monkeypatch.setattr(judging, "compile_graph", compile_graph)


def _program(x: Any, w: Any) -> Any:
    h = torch.tanh(x @ w) * 2 + 1
    h = torch.cos(torch.sin(torch.atan(h)) + 0.5)
    z = torch.where(h > 0, h, h * 0.1) @ w
    return z.sum(dim=-1), z.amax(dim=0) - z.amin(dim=0)


def _graph(program: Any = _program, mode: str = "real") -> tuple[Any, list[Any]]:
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(6, 4, generator=generator), torch.randn(4, 4, generator=generator)]
    return make_fx(program, tracing_mode=mode)(*inputs), inputs


def _wrong_atan(node: Any, value: Any) -> Any:
    return value * 1.1 if node.target is ATAN else value


def minify(
    module: Any, inputs: list[Any], how: Judge, trials: Any, **options: Any
) -> SmallestGraph:
    return GraphSearch(module, inputs, how, trials, **options).run()


def _search(
    how: Judge | None = None, trials: Any = None, program: Any = _program, **options: Any
) -> SmallestGraph:
    module, inputs = _graph(program)
    return minify(module, inputs, how or Judge("accuracy"), trials or TrialsHere(), **options)


def test_the_wrong_operation_is_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    _compile_with(monkeypatch, _wrong_atan)
    questions: list[Question] = []
    trials = TrialsHere()
    smallest = _search(trials=trials, report=questions.append)
    assert smallest.answer.status == findings.MINIFIED
    assert smallest.answer.operations == ("aten.atan.default",)
    assert smallest.failure == Failure(failure.DIFFERS)
    assert smallest.answer.nodes_before == 16 and smallest.answer.history[-1].node_count == 1
    assert [entry.query for entry in questions] == list(range(1, len(questions) + 1))
    assert smallest.answer.remembered_count > 0, "torch's minifier asks half of its questions twice"
    assert trials.count == smallest.answer.tried_count + 1, (
        "and once more to count the nodes that run in eager"
    )
    assert questions[-1].fewest == 1


def test_the_smallest_graph_is_run_on_the_values_that_it_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _compile_with(monkeypatch, _wrong_atan)
    module, (x, w) = _graph()
    smallest = minify(module, [x, w], Judge("accuracy"), TrialsHere())
    assert torch.equal(smallest.inputs[0], torch.tanh(x @ w) * 2 + 1)
    names = [node.name for node in smallest.module.graph.nodes if node.op == "placeholder"]
    assert names == ["add_value"], "no name of an operation that is not there"


def test_operations_that_fail_only_together_are_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(node: Any, value: Any) -> Any:
        is_fused = node.target is COS and any(
            entry.op != "placeholder" for entry in node.all_input_nodes
        )
        return value * 1.1 if is_fused and torch._inductor.config.max_fusion_size > 1 else value

    _compile_with(monkeypatch, change)
    answer = _search().answer
    assert answer.operations == ("aten.add.Tensor", "aten.cos.default")
    assert answer.is_together and answer.is_fusion
    assert "only when fused" in answer.sentence()


def test_an_interrupted_search_goes_on_from_its_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _compile_with(monkeypatch, _wrong_atan)
    path = tmp_path / "queries.jsonl"
    stopped = _search(trials=TrialsHere(0.02), log=QueryLog(path), max_seconds=0.1).answer
    assert stopped.status == findings.NOT_FINISHED and "spent" in str(stopped.why)
    finished = _search(log=QueryLog(path)).answer
    assert finished.nodes_after == 1
    again = _search(log=QueryLog(path)).answer
    assert (again.tried_count, again.operations) == (1, finished.operations), (
        "the whole graph is tried anew"
    )


def test_answers_of_other_code_are_worth_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "queries.jsonl"
    _compile_with(
        monkeypatch, lambda node, value: value * float("nan") if node.target is SIN else value
    )
    assert _search(log=QueryLog(path)).answer.operations == ("aten.sin.default",)
    _compile_with(monkeypatch, _wrong_atan)
    assert _search(log=QueryLog(path)).answer.operations == ("aten.atan.default",)


def test_each_smaller_graph_is_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    _compile_with(monkeypatch, _wrong_atan)
    counts: list[int] = []
    answer = _search(keep=lambda module, inputs: counts.append(len(list_calls(module)))).answer
    assert counts == [entry.node_count for entry in answer.history] == sorted(counts, reverse=True)


def test_a_suspected_node_is_tried_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _compile_with(monkeypatch, _wrong_atan)
    assert _search(suspect=lambda module, inputs: ["sin", "atan"]).answer.tried_count == 3


def test_ctrl_c_ends_with_the_smallest_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    _compile_with(monkeypatch, _wrong_atan)

    def report(question: Question) -> None:
        if question.fewest < 16:
            raise KeyboardInterrupt

    answer = _search(report=report).answer
    assert answer.status == findings.NOT_FINISHED and answer.why == "interrupted"


def test_another_error_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(node: Any, value: Any) -> Any:
        if node.target is ATAN:
            raise NotImplementedError("no lowering for atan")
        if node.target is SIN:
            raise ValueError("no lowering for sin")
        return value

    _compile_with(monkeypatch, change)
    module, inputs = _graph()
    smallest = minify(
        module, inputs, Judge("compile"), TrialsHere(), expected=raised("X", "no lowering for atan")
    )
    assert smallest.answer.status == findings.OTHER_FAILURE and "X: no lowering" in str(
        smallest.answer.why
    )
    expected = raised("InductorError", "NotImplementedError: no lowering for atan")
    smallest = minify(module, inputs, Judge("compile"), TrialsHere(), expected=expected)
    assert smallest.answer.operations == ("aten.atan.default",)


def test_a_graph_that_passes_is_not_reproduced(monkeypatch: pytest.MonkeyPatch) -> None:
    _compile_with(monkeypatch, lambda node, value: value)
    answer = _search().answer
    assert (
        answer.status == findings.NOT_REPRODUCED and answer.sentence() == "here the graph passes."
    )


def test_an_error_in_an_accuracy_repro_is_another_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(node: Any, value: Any) -> Any:
        raise ValueError("boxed")

    _compile_with(monkeypatch, change)
    assert _search().answer.status == findings.OTHER_FAILURE


def test_the_operation_that_is_named_is_tried_alone_first(monkeypatch: pytest.MonkeyPatch) -> None:
    _compile_with(monkeypatch, _wrong_atan)
    answer = _search(operation="aten.atan.default").answer
    assert (answer.tried_count, answer.nodes_after) == (2, 1)
    assert _search(operation="aten.sin.default").answer.nodes_after == 1, (
        "a wrong name costs a trial"
    )


def test_what_is_written_to_an_input_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Any, w: Any) -> Any:
        h = torch.tanh(x @ w) + 1
        x.copy_(h * 2)
        return (h.sum(),)

    def change(node: Any, value: Any) -> Any:
        return value.mul_(1.1) if node.target is torch.ops.aten.copy_.default else value

    _compile_with(monkeypatch, change)
    module, inputs = _graph(program)
    before = inputs[0].clone()
    smallest = minify(module, inputs, Judge("accuracy"), TrialsHere())
    # torch 2.4 takes what writes to an input for dead code, and so has nothing smaller.
    is_kept = next(n for n in module.graph.nodes if "copy_" in n.name).is_impure()
    found = smallest.answer.operations
    assert found == ("aten.copy_.default",) if is_kept else "aten.copy_.default" in found
    assert torch.equal(inputs[0], before), "inputs are as they were"


def test_symbols_are_kept_when_no_placeholder_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_graph(module: Any, inputs: Any, how: Judge) -> Any:
        sizes = [size for value in judging.symbolic_inputs(module, inputs) for size in value.shape]
        has_atan = any(node.target is ATAN for node in module.graph.nodes)
        if has_atan and any(isinstance(size, torch.SymInt) for size in sizes):
            raise NotImplementedError("atan of a dynamic size")
        return lambda values: module(*values)

    monkeypatch.setattr(judging, "compile_graph", compile_graph)
    module, inputs = _graph(mode="symbolic")
    trials = TrialsHere()
    trials.run = lambda function, *arguments, limits=None: _run_here(function, arguments)  # type: ignore[method-assign]
    smallest = minify(module, inputs, Judge("compile"), trials)
    assert smallest.answer.operations == ("aten.atan.default",)
    assert isinstance(
        judging.symbolic_inputs(smallest.module, smallest.inputs)[0].shape[0], torch.SymInt
    )


def _run_here(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Outcome:
    try:
        return Outcome(OK, function(*arguments))  # symbols cannot be copied
    except Exception as error:
        return Outcome(RAISED, errors=list_errors(error))


def _die(value: Any) -> Any:
    ctypes.string_at(0)


def test_a_process_that_dies_is_a_failure_and_no_compile_is_needed_for_it(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    for number in range(12):
        value = graph.call_function(_die if number == 7 else torch.sin, (value,))
    graph.output((value,))
    module = torch.fx.GraphModule({}, graph)
    trials = ForkedRunner(TrialLimits(60), tmp_path)
    smallest = minify(
        module,
        [torch.ones(3)],
        Judge("crash"),
        trials,
        expected=Failure("signal", signal="SIGSEGV"),
    )
    assert [node.target for node in list_calls(smallest.module)] == [_die]
    assert smallest.answer.fails_in_eager and smallest.failure.signal == "SIGSEGV"
    assert torch.equal(smallest.inputs[0], _sin_times(7)), (
        "the values up to the operation that dies"
    )


def test_a_graph_is_pickled_to_trials_that_were_forked_before(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    for _ in range(4):
        value = graph.call_function(SIN, (value,))
    graph.output((graph.call_function(torch.ops.aten.view.default, (value, [7])),))
    trials = ForkedRunner(TrialLimits(60), tmp_path)
    trials.needs_fork_server()
    smallest = minify(torch.fx.GraphModule({}, graph), [torch.ones(3)], Judge("runtime"), trials)
    whole = torch.ones(6)
    shared = trials.run(_share_memory, whole, whole[2:4])
    assert smallest.answer.operations == ("aten.view.default",)
    assert smallest.failure.error_type == "RuntimeError" and smallest.answer.fails_in_eager
    assert shared.value, shared


def _share_memory(whole: Any, part: Any) -> bool:
    return bool(whole.data_ptr() + 2 * whole.element_size() == part.data_ptr())


def _sin_times(count: int) -> Any:
    value = torch.ones(3)
    for _ in range(count):
        value = value.sin()
    return value


def test_a_trial_that_reaches_a_limit_counts_as_passing(monkeypatch: pytest.MonkeyPatch) -> None:
    _compile_with(monkeypatch, _wrong_atan)

    class Limited(TrialsHere):
        def run(
            self, function: Callable[..., Any], *arguments: Any, limits: TrialLimits | None = None
        ) -> Outcome:
            outcome = super().run(function, *arguments, limits=limits)
            return Outcome("timed_out") if self.count == 3 else outcome

    answer = _search(trials=Limited()).answer
    assert answer.limited_count == 1 and answer.nodes_after == 1
