"""What a compiled graph returned is judged beside eager and float64, its inputs as well."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from compileboard.collectors.repro import judging as accuracy  # noqa: E402
from compileboard.collectors.repro.judging import (  # noqa: E402
    Difference,
    clone_together,
    compare,
    worst_of,
)


def _tensor(*values: float) -> Any:
    return torch.tensor(values, dtype=torch.float32)


@pytest.mark.parametrize(
    ("eager", "compiled", "reference", "status"),
    [
        (_tensor(1, 2), _tensor(1, 2), None, "passed"),
        (_tensor(1, 2), _tensor(1, 2.5), None, "differs"),
        (_tensor(1, 2), _tensor(1, math.nan), None, "not_finite"),
        (_tensor(1, math.nan), _tensor(1, math.nan), None, "passed"),
        (_tensor(1, math.inf), _tensor(1, -math.inf), None, "not_finite"),
        (_tensor(1, math.nan), _tensor(1, 2), _tensor(1, 2).double(), "passed"),
        (_tensor(1, 2), _tensor(1, 2.5), _tensor(1, math.nan).double(), "differs"),
        (_tensor(1, 2).long(), _tensor(1, 3).long(), None, "other_integers"),
        (_tensor(1, 2), _tensor(1, 2).double(), None, "differs"),
        (_tensor(1, 2), _tensor(1), None, "differs"),
    ],
)
def test_a_tensor_is_judged(eager: Any, compiled: Any, reference: Any, status: str) -> None:
    assert compare("output 0", eager, compiled, reference).status == status


def test_an_error_no_larger_than_eagers_own_passes() -> None:
    exact = torch.linspace(1, 2, 2000, dtype=torch.float64)
    eager, compiled = (exact * 1.01).float(), (exact * 0.985).float()
    difference = compare("output 0", eager, compiled, exact)
    assert difference.status == "passed"
    assert difference.error == pytest.approx(
        0.015, rel=1e-3
    ) and difference.eager_error == pytest.approx(0.01, rel=1e-3)
    assert compare("output 0", eager, compiled, exact, is_strict=True).status == "differs"


def test_copies_share_what_the_inputs_share() -> None:
    whole = torch.arange(12, dtype=torch.float32)
    view, other, number = whole[3:9].view(2, 3).t(), torch.ones(2, requires_grad=True), 5
    copies = clone_together([whole, view, other, number])
    copies[0].fill_(7)
    assert copies[1].tolist() == [[7, 7], [7, 7], [7, 7]] and whole[0] == 0
    assert copies[1].stride() == view.stride() and copies[1].storage_offset() == 3
    assert copies[2].requires_grad and copies[3] == 5
    exact = clone_together([whole, view], torch.float64)
    assert exact[0].dtype == torch.float64 and exact[1].data_ptr() == exact[0][3:].data_ptr()


def test_nan_counts_more_than_a_wrong_number() -> None:
    differences = [Difference("output 0", "differs", 9.0), Difference("output 1", "not_finite")]
    worst = worst_of(differences)
    assert worst is not None and worst.subject == "output 1"
    assert worst_of([]) is None
    assert "error" not in Difference("output 0", "differs", math.inf).to_json()


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_anything_is_equal_to_itself(values: list[float]) -> None:
    tensor = torch.tensor(values)
    assert compare("output 0", tensor, tensor.clone(), tensor.double()).status == "passed"
    assert compare("output 0", tensor, tensor.clone(), is_strict=True).status == "passed"


def test_what_returned_another_number_of_values_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="eager returned 1 values, the compiled graph 0"):
        accuracy.compare_all([("output 0", 1)], [], None)
