"""Of a graph that is compiled wrongly the operation is named, of one that is right none."""

from __future__ import annotations

from typing import Any

import pytest

from compileboard.collectors.repro import findings

torch = pytest.importorskip("torch")

from compileboard.collectors.repro.graph_loading import list_calls  # noqa: E402
from compileboard.collectors.repro.judging import Judge  # noqa: E402
from compileboard.collectors.repro.locate.analyze import analyze_graph  # noqa: E402
from tests.integration.repro.healthy_graphs import HEALTHY, trace  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
AOT = Judge("accuracy", "aot")


QUICK_ONES = ("bits_and_comparisons",)


@pytest.fixture
def wrong_lowering(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what makes a lowering of inductor wrong for a test."""
    from torch._inductor import config
    from torch._inductor.lowering import lowerings

    def plant(target: Any, change: Any) -> None:
        right = lowerings[target]
        monkeypatch.setitem(
            lowerings, target, lambda *args, **kwargs: change(lowerings, right(*args, **kwargs))
        )

    with config.patch(fx_graph_cache=False):
        yield plant


def multiply(factor: float) -> Any:
    return lambda lowerings, value: lowerings[torch.ops.aten.mul.Tensor](value, factor)


def program(x: Any) -> Any:
    h = (x * 1.5).atan()
    return (h.sin() + h).sum(-1), h.exp().erf()


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK_ONES else pytest.param(name, marks=pytest.mark.nightly)
        for name in HEALTHY
    ],
)
def test_nothing_is_named_where_nothing_is_wrong(name: str) -> None:
    healthy, make = HEALTHY[name]
    torch.manual_seed(3)
    analysis = analyze_graph(trace(healthy, make()), make(), AOT)
    wrong = [row for row in analysis.rows if row.verdict in findings.WRONG_VERDICTS]
    assert wrong == []
    assert analysis.status == findings.NOT_REPRODUCED, analysis.failure
    assert analysis.judged_count >= 2 and analysis.not_judged_count <= 2


def test_the_wrong_operation_is_named_and_explains_the_output(wrong_lowering: Any) -> None:
    wrong_lowering(torch.ops.aten.atan.default, multiply(1.01))
    x = torch.linspace(-2, 2, 24).reshape(4, 6)
    analysis = analyze_graph(trace(program, [x]), [x], AOT)
    assert (analysis.status, analysis.operation, analysis.node) == (
        findings.NAMED,
        "aten.atan.default",
        "atan",
    )
    assert analysis.explains is True and analysis.is_deterministic is True
    row, *others = analysis.rows
    assert row.error == pytest.approx(0.01, rel=1e-3) and (row.eager_error or 1) < 1e-6
    assert {other.verdict for other in others} == {findings.RIGHT}


@pytest.mark.nightly
def test_of_two_that_are_wrong_both_are_listed_and_neither_alone_explains(
    wrong_lowering: Any,
) -> None:
    wrong_lowering(torch.ops.aten.atan.default, multiply(1.1))
    wrong_lowering(torch.ops.aten.erf.default, multiply(0.9))
    x = torch.linspace(-2, 2, 24).reshape(4, 6)
    analysis = analyze_graph(trace(program, [x]), [x], AOT)
    wrong = [row.operation for row in analysis.rows if row.verdict == findings.WRONG]
    assert sorted(wrong) == ["aten.atan.default", "aten.erf.default"] and analysis.explains is False
    assert analysis.notes == ("No operation alone explains the outputs; all of them together do",)


@pytest.mark.nightly
def test_a_graph_that_does_not_fit_into_memory_is_judged_in_parts(wrong_lowering: Any) -> None:
    wrong_lowering(torch.ops.aten.erf.default, multiply(1.01))
    x = torch.linspace(-2, 2, 24).reshape(4, 6)
    module = trace(program, [x])
    analysis = analyze_graph(module, [x], AOT, memory_bytes=700)
    assert analysis.compile_count > 3 and analysis.operation == "aten.erf.default"
    assert {row.node for row in analysis.rows} == {node.name for node in list_calls(module)}


def test_a_decomposition_that_is_wrong_is_named_in_dynamos_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._inductor.decomposition import decompositions

    def softplus(x: Any, beta: float = 1, threshold: float = 20) -> Any:
        return torch.log1p(torch.exp(x * beta)) / beta + 0.01

    monkeypatch.setitem(decompositions, torch.ops.aten.softplus.default, softplus)
    torch._inductor.decomposition.fast_random_decomps.cache_clear()
    graph = torch.fx.symbolic_trace(lambda x: (torch.nn.functional.softplus(x.sin()).mean(-1),))
    x = torch.linspace(-2, 2, 24).reshape(4, 6)
    analysis = analyze_graph(graph, [x], Judge("accuracy", "dynamo"))
    assert (analysis.operation, analysis.cause) == ("torch.softplus", findings.DECOMPOSITION)
    assert analysis.explains is True
    torch._inductor.decomposition.fast_random_decomps.cache_clear()
