"""What the advice says of numbers is so in the torch at hand."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def compiles(function: Any, values: list[Any], **options: Any) -> int:
    """Count the compiles that calls with these values need."""
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(function, backend=counter, **options)
    for value in values:
        compiled(torch.ones(3), value)
    torch._dynamo.reset()
    return int(counter.frame_count)


def test_a_number_costs_one_recompile_and_dynamic_or_a_tensor_none() -> None:
    for values in ([1.5, 2.5, 3.5, 4.5], [5, 6, 7, 8]):
        assert compiles(lambda x, n: x * n, values) == 2
        assert compiles(lambda x, n: x * n, values, dynamic=True) == 1
        assert compiles(lambda x, n: x * n, [torch.tensor(value) for value in values]) == 1


def test_a_number_that_the_code_depends_on_is_compiled_in_each_time() -> None:
    assert compiles(lambda x, n: sum(x for _ in range(n)), [2, 3, 4, 5]) == 4
    assert compiles(lambda x, n: torch.zeros(n) + x.sum(), [5, 6, 1, 0, 7]) == 4


def test_specialize_float_compiles_every_float_in() -> None:
    import torch._dynamo.config as config

    with config.patch(specialize_float=True):
        assert compiles(lambda x, n: x * n, [1.5, 2.5, 3.5, 4.5]) == 4
