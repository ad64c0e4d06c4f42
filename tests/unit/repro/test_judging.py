"""A graph is compiled, run and compared; sizes that are symbols stay symbols."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from compileboard.collectors.repro import judging  # noqa: E402
from compileboard.collectors.repro.judging import (  # noqa: E402
    EAGER,
    Judge,
    judge,
    symbolic_inputs,
)


def _stub(monkeypatch: pytest.MonkeyPatch, compiled: Any) -> None:
    monkeypatch.setattr(
        judging, "compile_graph", lambda module, inputs, how: lambda values: compiled(*values)
    )


def test_a_wrong_answer_is_told_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    module = make_fx(lambda x: (x.sin(),))(torch.ones(3))
    _stub(monkeypatch, lambda x: (x.sin() * 1.1,))
    answer = judge(module, [torch.ones(3)], Judge("accuracy"))
    assert answer["failure"] == {"status": "differs"}
    assert answer["differences"][0]["subject"] == "output 0"
    assert answer["differences"][0]["error"] == pytest.approx(0.1, rel=1e-3)


def test_what_is_written_to_an_input_is_compared_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    module = make_fx(lambda x, y: (x.add_(y) * 0,))(torch.ones(3), torch.ones(3))
    inputs = [torch.ones(3), torch.ones(3)]
    _stub(monkeypatch, lambda x, y: (x.add_(y, alpha=2) * 0,))
    answer = judge(module, inputs, Judge("accuracy"))
    assert [entry["subject"] for entry in answer["differences"]] == ["input 0 afterwards"]
    assert inputs[0].tolist() == [1, 1, 1]


def test_dynamos_graph_is_compared_with_its_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 3

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 2

    graph = torch.fx.symbolic_trace(lambda x: (x * 3,))
    _stub(monkeypatch, lambda x: (Wrong.apply(x),))
    answer = judge(graph, [torch.ones(3, requires_grad=True)], Judge("accuracy", "dynamo"))
    assert [entry["subject"] for entry in answer["differences"]] == ["gradient of input 0"]


def test_a_graph_can_be_tried_without_a_compiler() -> None:
    module = make_fx(lambda x: (x + 1,))(torch.ones(3))
    assert judge(module, [torch.ones(3)], Judge("crash", mode=EAGER))["failure"] == {
        "status": "passed"
    }
    with pytest.raises(RuntimeError):
        judge(
            make_fx(lambda x: (x.view(3),))(torch.ones(3)),
            [torch.ones(4)],
            Judge("runtime", mode=EAGER),
        )


def test_symbols_stay_where_no_placeholder_is_one() -> None:
    module = make_fx(lambda x: (x + x.shape[0],), tracing_mode="symbolic")(torch.ones(5, 2))
    given = symbolic_inputs(module, [torch.ones(5, 2)])
    assert isinstance(given[0].shape[0], torch.SymInt)
    static = make_fx(lambda x: (x + 1,))(torch.ones(5))
    real = torch.ones(5)
    assert symbolic_inputs(static, [real]) == [real]
