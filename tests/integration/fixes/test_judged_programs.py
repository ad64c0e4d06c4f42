"""Programs that judge the advice say what is right, and what counts as harm is seen."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from benchmarks.fixes.cases.__main__ import FOLDER as CASES  # noqa: E402
from benchmarks.fixes.cases.advised import ADVISED  # noqa: E402
from benchmarks.fixes.models.__main__ import FOLDER as MODELS  # noqa: E402
from benchmarks.fixes.recorded import list_differences, list_programs  # noqa: E402
from tests.programs.advised.edits import edit_program  # noqa: E402

pytestmark = pytest.mark.torch


def test_each_program_says_what_is_right():
    assert all({"Reported", "Right", "Harm"} <= case.facts.keys() for case in list_programs(CASES))
    assert all({"Right", "Place"} <= model.facts.keys() for model in list_programs(MODELS))


def test_followed_advice_is_a_program():
    cases = {case.name: case.text for case in list_programs(CASES)}
    for (name, _fix), edits in ADVISED.items():
        if not isinstance(edits, str):
            compile(edit_program(cases[name], *edits), name, "exec")


@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        ([1.0], [1.0 + 1e-6], []),
        ([1.0], [1.1], ["result[0] is 1, now 1.1"]),
        ({"loss": 1.0}, {"loss": torch.tensor(1.0)}, ["result['loss'] is float, now Tensor"]),
        (torch.ones(2), torch.ones(3), ["result is torch.float32[2], now torch.float32[3]"]),
        ([torch.ones(2)], [torch.zeros(2)], ["result[0] has other values"]),
        ([1], [], ["result has 1 items, now 0"]),
    ],
)
def test_a_result_differs_in_value_type_and_size(old, new, seen):
    assert list(list_differences(old, new)) == seen
