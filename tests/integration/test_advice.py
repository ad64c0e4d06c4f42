"""What the advice says is so in the torch at hand: its own guards fail, we advise, and the advice is followed."""

from typing import Any

import pytest

from compileboard.collectors.contract.events import GuardFailure
from compileboard.collectors.decode.guards.advice import suggest_in
from compileboard.collectors.decode.guards.recompile_reasons import parse_reason

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


def fail_guard(function: Any, values: list[Any]) -> GuardFailure:
    """Call until torch would recompile, and read the guard that it names."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager")
    with torch._dynamo.config.patch(error_on_recompile=True), pytest.raises(Exception, match="guard failure") as raised:
        for value in values:
            compiled(torch.ones(3), value)
    torch._dynamo.reset()
    _, _, reason = str(raised.value).partition("- ")
    return parse_reason(reason.strip())


@pytest.mark.parametrize(("values", "category"), [([1.5, 2.5, 3.5, 4.5], "float_value"), ([5, 6, 7, 8], "int_value")])
def test_a_number_costs_one_recompile_and_dynamic_or_a_tensor_none(values: list[Any], category: str) -> None:
    failed = fail_guard(lambda x, n: x * n, values)
    assert (failed.category, failed.source) == (category, "n")
    assert "costs one recompile" in str(failed.suggestion) and "torch.compile(dynamic=True)" in str(failed.suggestion)
    assert compiles(lambda x, n: x * n, values) == 2
    assert compiles(lambda x, n: x * n, values, dynamic=True) == 1
    assert compiles(lambda x, n: x * n, [torch.tensor(value) for value in values]) == 1


def test_a_number_that_the_code_depends_on_is_compiled_in_each_time() -> None:
    failed = fail_guard(lambda x, n: sum(x for _ in range(n)), [2, 3])
    assert "a loop, a branch or a size of 0 or 1 depends on are compiled in each time" in str(failed.suggestion)
    assert compiles(lambda x, n: sum(x for _ in range(n)), [2, 3, 4, 5]) == 4
    assert compiles(lambda x, n: torch.zeros(n) + x.sum(), [5, 6, 1, 0, 7]) == 4


def test_specialize_float_compiles_every_float_in() -> None:
    with torch._dynamo.config.patch(specialize_float=True):
        failed = fail_guard(lambda x, n: x * n, [1.5, 2.5])
        assert "specialize_float" in str(failed.suggestion)
        assert compiles(lambda x, n: x * n, [1.5, 2.5, 3.5, 4.5]) == 4


def test_callables_share_the_compiles_of_torchs_own_wrapper_and_not_those_of_a_function_around_them() -> None:
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    with torch._dynamo.config.patch(recompile_limit=2):
        for item in (torch.nn.ReLU(), torch.nn.GELU(), torch.nn.SiLU(), torch.nn.Tanh()):
            torch.compile(item, backend=counter)(torch.ones(3))
        assert counter.frame_count == 2, "all four, and the limit is of them together"
        torch._dynamo.reset()
        counter.frame_count = 0
        both = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.GELU(), torch.nn.SiLU(), torch.nn.Tanh())
        torch.compile(lambda x: both(x), backend=counter)(torch.ones(3))
        assert counter.frame_count == 1
    torch._dynamo.reset()
    advice = str(suggest_in("torch/_dynamo/external_utils.py", "object_identity", "create functions once"))
    assert "recompile limit" in advice and "function or module of yours that calls them" in advice
