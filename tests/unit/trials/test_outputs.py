"""What two sides returned and printed is equal within tolerance, or named."""

import pytest

from compileboard.collectors.trials.comparison import compare_lines, compare_outputs, compare_values
from compileboard.collectors.trials.execution import Call, ProcessCalls, pick_step


def tensor(values, dtype="float32", shape=None, sums=()):
    return ["", "tensor", dtype, values, shape or [len(values)], list(sums)]


def call(*leaves, number=0, name="f", **changes):
    return Call(
        number, name, 1.0, False, changes.get("is_random", False), [list(leaf) for leaf in leaves]
    )


@pytest.mark.parametrize(
    ("base", "new"),
    [
        (tensor([1.0, 2.0]), tensor([1.00001, 2.0])),
        (tensor([1000.0, 1e-9]), tensor([1000.0, 2e-9])),  # beside the largest, nothing
        (tensor([float("nan")]), tensor([float("nan")])),
        (tensor([1.0], "bfloat16"), tensor([1.01], "bfloat16")),
        (["", "number", "float", [2.5]], ["", "tensor", "float32", [2.5], [], []]),
        (["", "text", "str", "'a'"], ["", "text", "str", "'a'"]),
    ],
)
def test_equal_values(base, new):
    assert compare_values(call(base), call(new)) is None


@pytest.mark.parametrize(
    ("base", "new", "message"),
    [
        (tensor([1.0]), tensor([1.01]), "1 → 1.01"),
        (tensor([1], "int64"), tensor([2], "int64"), "1 → 2"),
        (tensor([1.0]), tensor([1.0], "float16"), "float32 → float16"),
        (tensor([1.0]), tensor([1.0, 2.0]), r"shape \[1\] → \[2\]"),
        (tensor([1.0], sums=[5.0]), tensor([1.0], sums=[6.0]), "5 → 6"),
        (["", "text", "NoneType", "None"], tensor([1.0]), "None → "),
        (tensor([1.0]), tensor([float("nan")]), "1 → nan"),
    ],
)
def test_different_values(base, new, message):
    import re

    assert re.search(
        rf"compiled call 1 \(f\) returned result: .*{message}",
        compare_values(call(base), call(new)),
    )


def test_a_value_that_is_missing_is_named():
    assert compare_values(call(["['a']", "number", "int", [1]]), call()) == (
        "compiled call 1 (f) returned result['a'] → nothing there"
    )


def sides(base, new):
    return [ProcessCalls(None, 0, base)], [ProcessCalls(None, 0, new)]


def test_calls_that_draw_random_numbers_are_left_out_where_they_differ():
    calls = sides(
        [call(tensor([1.0]), is_random=True), call(tensor([3.0]), number=1)],
        [call(tensor([2.0])), call(tensor([3.0]), number=1)],
    )
    compared = compare_outputs(("exit code 0",) * 2, calls, ([], []))
    assert (compared.is_equal, compared.random_call_count, compared.value_count) == (True, 1, 1)
    assert compared.describe() == (
        "equal: exit code, 1 value of 1 compiled call; 1 call with random numbers left out"
    )


def test_exit_codes_and_numbers_of_calls_differ():
    different = compare_outputs(("exit code 0", "exit code 1"), ([], []), ([], []))
    assert different.describe() == "differs: exit code 0 → exit code 1 (compared: exit code)"
    fewer = compare_outputs(("0", "0"), sides([call(), call(number=1)], [call()]), ([], []))
    assert fewer.difference == "2 compiled calls → 1"


@pytest.mark.parametrize(
    ("base", "new", "difference"),
    [
        (["loss 0.12345"], ["loss 0.12346"], None),
        (["step 1 took 3.2 ms"], ["step 1 took 9 ms"], None),
        (["a", "b 1.0"], ["b 1.00001", "a"], None),
        (["2026-01-01 10:00:01 x"], ["2026-01-01 11:30:59 x"], None),
        (["loss 0.1"], ["loss 0.2"], "printed line 1: 'loss 0.1' → 'loss 0.2'"),
        (["a"], ["a", "b"], "printed line 2: not there → 'b'"),
    ],
)
def test_printed_lines(base, new, difference):
    assert compare_lines(base, new) == (max(len(base), len(new)), difference, 0)


def test_lines_that_are_only_missing_are_counted_where_values_are_equal():
    assert compare_lines(["a 1", "b", "a 2"], ["b"]) == (3, "printed line 1: 'a 1' → 'b'", 2)
    calls = sides([call(tensor([1.0]))], [call(tensor([1.0]))])
    fewer = compare_outputs(("0", "0"), calls, (["a", "b"], ["b"]))
    assert (fewer.has_same_results, fewer.is_equal) == (True, False)
    assert fewer.word == "values equal, 1 printed line fewer"
    assert not compare_outputs(("0", "0"), ([], []), (["a", "b"], ["b"])).has_same_results


def test_the_step_is_what_took_longest_on_both_sides_after_its_compiles():
    def timed(name, *times):
        return [Call(n, name, us, us > 50, False, None) for n, us in enumerate(times)]

    base = [
        ProcessCalls(
            None, 0, timed("f", 100, 9, 9, 5, 5, 5) + timed("g", 8, 8, 8) + timed("h", 40, 40, 40)
        )
    ]
    new = [ProcessCalls(None, 0, timed("f", 90, 9, 9, 4, 4, 4) + timed("g", 8, 8, 8))]
    assert pick_step([base, new]) == "g"
    assert base[0].list_steps()["f"] == [5, 5, 5]
    assert pick_step([base, []]) is None
