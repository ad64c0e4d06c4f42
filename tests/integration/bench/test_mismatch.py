"""A wrong answer says where it is wrong and how far."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
difference = pytest.importorskip("compileboard.collectors.bench.worker.same_as_eager")
pytestmark = pytest.mark.torch


def test_the_worst_tensor_is_named_with_its_distance() -> None:
    eager = [torch.full((4, 2), 2.0), {"loss": torch.tensor(1.0), "same": torch.ones(3)}]
    compiled = [torch.full((4, 2), 2.2), {"loss": torch.tensor(1.5), "same": torch.ones(3)}]
    text = (
        "2 of 3 tensors differ, most in result[1]['loss'] (): 0.5 of eager's root mean square, "
        "at most 0.5 in one"
    )
    assert difference.describe_difference(eager, compiled) == f"{text} element"
    assert ": where eager has zeros, at most 1 in" in difference.describe_difference(
        torch.zeros(2), torch.ones(2)
    )


def test_eagers_own_distance_from_double_precision_is_said_beside_it() -> None:
    eager, exact = torch.full((8,), 1.001), torch.ones(8, dtype=torch.float64)
    assert "; eager itself is 0.001 from double precision" in difference.describe_difference(
        eager, eager + 1, exact
    )


def test_a_number_that_one_side_alone_has_is_counted_and_one_that_neither_has_is_not() -> None:
    eager, compiled = (
        torch.tensor([1.0, float("nan"), 3.0]),
        torch.tensor([float("inf"), float("nan"), 3.0]),
    )
    assert difference.describe_difference(eager, compiled).endswith(
        "; numbers that are finite on one side alone: 1"
    )
    assert difference.describe_difference(eager, eager.clone()) == ""


@pytest.mark.parametrize(
    ("compiled", "message"),
    [
        (
            torch.ones(2, dtype=torch.float16),
            "result is float32 (2,) in eager and float16 (2,) compiled",
        ),
        (torch.ones(3), "result is float32 (2,) in eager and float32 (3,) compiled"),
        (
            [torch.ones(2), torch.ones(2)],
            "eager gives 1 tensor and the compiled model 2 tensors, or in other places",
        ),
    ],
)
def test_another_kind_of_result_is_said_to_be(compiled: object, message: str) -> None:
    assert difference.describe_difference(torch.ones(2), compiled) == message


def test_complex_boolean_and_empty_tensors_and_a_librarys_output_are_compared() -> None:
    eager = SimpleNamespace(
        a=torch.tensor([1 + 1j]), b=torch.tensor([True]), c=torch.ones(0), d="text"
    )
    compiled = SimpleNamespace(
        a=torch.tensor([1 + 2j]), b=torch.tensor([True]), c=torch.ones(0), d="text"
    )
    assert difference.describe_difference(eager, compiled).startswith(
        "1 of 3 tensors differ, most in result.a (1,)"
    )


def test_the_output_error_is_that_of_the_worst_tensor_and_none_where_tensors_do_not_fit() -> None:
    eager = [torch.full((4, 2), 2.0), torch.ones(3)]
    assert difference.output_error(
        eager, [torch.full((4, 2), 2.2), torch.ones(3)]
    ) == pytest.approx(0.1)
    assert difference.output_error(eager, eager) == 0.0
    assert difference.output_error(eager, [torch.ones(4, 2), torch.ones(2)]) is None
    assert (
        difference.output_error(eager, [torch.full((4, 2), 2.0), torch.full((3,), float("nan"))])
        is None
    )
    assert difference.output_error("no tensor", "no tensor") is None


def test_the_reference_draws_the_random_numbers_that_eager_draws() -> None:
    bench = SimpleNamespace(
        settings=SimpleNamespace(skip_fp64_check=False),
        inputs=(torch.ones(8, 16),),
        copy_module=lambda dtype=torch.float32: torch.nn.Dropout(0.5).to(dtype),
        steps=SimpleNamespace(use=lambda module: None, step=lambda: None),
        run_iterations=lambda step, module, inputs, iterations: module(*inputs),
        free=lambda: None,
    )
    torch.rand(3)  # what loading a model draws
    exact = difference._run_reference(bench, 1, {})
    assert torch.equal(exact, difference._run_eager(bench, 1, "1st").double())
