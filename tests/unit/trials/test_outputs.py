"""What two sides returned and printed is equal within tolerance, or named."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.trials.execution import Call, ProcessCalls, pick_step
from compileboard.collectors.trials.outputs import (
    Output,
    clean_errors,
    compare_lines,
    compare_outputs,
    compare_values,
)


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


def test_another_name_of_the_function_is_no_other_output():
    assert compare_values(call(tensor([1.0])), call(tensor([1.0]), name="g")) is None


def raised(kind, message):
    return call(["", "raised", kind, message])


def test_another_exception_is_a_difference_and_an_address_in_it_is_none():
    base = raised("AssertionError", "bad value 0.5 at 0x7f01")
    assert compare_values(base, raised("AssertionError", "bad value 0.5 at 0x7f99")) is None
    for other in (raised("RuntimeError", "bad value 0.5 at 0x7f01"), raised("AssertionError", "")):
        assert compare_values(base, other).startswith(
            "compiled call 1 (f) raised AssertionError: bad value 0.5 at 0x7f01 → raised "
        )
    assert compare_values(base, call(tensor([1.0]))).endswith("→ returned a result")


def backward(*leaves, number=0):
    return Call(number, "", 0.0, False, False, [list(leaf) for leaf in leaves], is_backward=True)


def test_gradients_are_compared_in_any_order():
    large, small = tensor([1.0, 2.0]), tensor([3.0])
    assert compare_values(backward(large, small), backward(small, large)) is None
    assert compare_values(backward(large, small), backward(small)) == (
        "backward pass 1: gradient of a tensor [2]: tensor → nothing there"
    )
    assert "[1]: 3 → 4" in compare_values(backward(small), backward(tensor([4.0])))
    assert "1 gradient more" in compare_values(backward(small), backward(small, large))


def output(*calls, exit="exit code 0", lines=()):
    return Output(exit, [ProcessCalls(None, 0, list(calls))] if calls else (), {"stdout": lines})


def test_calls_after_other_random_numbers_are_left_out_where_they_differ():
    drew, then = call(tensor([1.0]), is_random=True), call(tensor([3.0]), number=1)
    base = [output(call(tensor([0.0])), replace(drew, number=1), replace(then, number=2))]
    new = output(call(tensor([0.0])), call(tensor([2.0]), number=1), call(tensor([4.0]), number=2))
    compared = compare_outputs(base, new)
    assert (compared.is_equal, compared.random_count, compared.value_count) == (True, 2, 1)
    assert compared.describe() == (
        "equal: exit code, 1 value of 1 compiled call; 2 calls with random numbers left out"
    )


def test_values_that_differ_by_themselves_are_left_out():
    bases = [output(call(tensor([value]))) for value in (1.0, 2.0)]
    compared = compare_outputs(bases, output(call(tensor([3.0]))))
    assert (compared.is_equal, compared.unsteady_count, compared.call_count) == (True, 1, 0)
    assert not compare_outputs(bases[:1], output(call(tensor([3.0])))).is_equal


def test_exit_codes_and_numbers_of_calls_differ():
    different = compare_outputs([output()], output(exit="exit code 1"))
    assert different.describe() == "differs: exit code 0 → exit code 1 (compared: exit code)"
    fewer = compare_outputs([output(call(), call(number=1))], output(call()))
    assert fewer.difference == "2 compiled calls → 1"
    passes = compare_outputs([output(call(), backward())], output(call()))
    assert passes.difference == "1 backward passes → 0"


@pytest.mark.parametrize(
    ("base", "new", "difference"),
    [
        (["loss 0.12345"], ["loss 0.12346"], None),
        (["step 1 took 3.2 ms"], ["step 1 took 9 ms"], None),
        (["2026-01-01 10:00:01 x"], ["2026-01-01 11:30:59 x"], None),
        (["in torch_dynamo_resume_in_f_at_5"], ["in torch_dynamo_resume_in_f_at_6"], None),
        (["loss 0.1"], ["loss 0.2"], "stdout line 1: 'loss 0.1' → 'loss 0.2'"),
        (["step 1000"], ["step 1001"], "stdout line 1: 'step 1000' → 'step 1001'"),
        (["a"], ["a", "b"], "stdout line 2: not there → 'b'"),
        (["a", "b", "b"], ["a"], "stdout line 2: 'b' → not there, and 1 more"),
        (["a", "a"], ["a"], "stdout line 2: 'a' → not there"),
    ],
)
def test_printed_lines(base, new, difference):
    assert compare_lines([base], new).difference == difference


def test_lines_in_another_order_are_equal_and_said():
    compared = compare_outputs([output(lines=["a 1", "b"])], output(lines=["b", "a 1"]))
    assert (compared.is_equal, compared.word) == (True, "output equal, lines in another order")


BASES = (["id x1", "t 5.1", "end"], ["id y2", "t 9.7", "end"])


@pytest.mark.parametrize(
    ("new", "difference"),
    [
        (["id z3", "t 7.2", "end"], None),
        (["t 7.2", "end"], "1 line of stdout lost, of those that differ by themselves"),
        (["id z3", "t 7.2"], "stdout line 3: 'end' → not there"),
        (["id z3", "t 7.2", "END"], "stdout line 3: 'end' → 'END'"),
        (["id z3", "t 7.2", "end", "more"], "stdout line 4: not there → 'more'"),
    ],
)
def test_lines_that_differ_by_themselves_may_differ_and_not_be_lost(new, difference):
    assert compare_lines(BASES, new).difference == difference


LINES = st.lists(st.sampled_from(["a", "b", "c 1.5", "c 2.5"]), max_size=8)


@given(LINES, LINES)
def test_lines_are_equal_exactly_where_each_is_there_as_often(base, new):
    compared = compare_lines([base], new)
    assert (compared.difference is None) == (Counter(base) == Counter(new))
    assert compared.difference or compared.is_reordered == (base != new)


def test_what_the_compiler_logs_and_places_of_warnings_are_no_output():
    lines = """\
W1128 00:33:43.400000 7794 torch/_dynamo/variables/tensor.py:1759] [3/0] Graph break from `item`
W1128 00:33:43.400000 7794 .venv/lib/python3.11/site-packages/torch/_dynamo/exc.py:9] [3/0] or:
W1128 00:33:43.400000 7794 train.py:9] loss of torch/x.py:1] is nan
/app/train.py:12: UserWarning: small batch
  warnings.warn("small batch")
/site-packages/torch/_inductor/compile_fx.py:5: UserWarning: TensorFloat32
  warnings.warn(
Traceback (most recent call last):
  File "/app/train.py", line 12, in <module>
    main()
ValueError: no batch
done""".splitlines()
    assert list(clean_errors(lines)) == [
        "W1128 00:33:43.400000 7794 train.py:9] loss of torch/x.py:1] is nan",
        "UserWarning: small batch",
        "ValueError: no batch",
        "done",
    ]


def test_the_step_is_what_took_longest_on_both_sides_after_its_compiles():
    def timed(name, *times):
        return [Call(n, name, us, us > 50, False, None, after_us=1) for n, us in enumerate(times)]

    base = [
        ProcessCalls(
            None, 0, timed("f", 100, 9, 9, 5, 5, 5) + timed("g", 8, 8, 8) + timed("h", 40, 40, 40)
        )
    ]
    new = [ProcessCalls(None, 0, timed("f", 90, 9, 9, 4, 4, 4) + timed("g", 8, 8, 8))]
    assert pick_step([base], [new]) == ("g", False)
    assert base[0].list_steps()["f"] == [6, 6, 6]  # with what the program does after each call
    assert pick_step([base], [[]]) == (None, False)


def test_the_step_is_of_what_the_fix_changed_and_called_as_often():
    def side(f_frames, call_count):
        calls = [Call(0, "f", 9, True, False, None, after_us=1, frames=f_frames)]
        calls += [Call(n, "f", 9, False, False, None, after_us=1) for n in range(call_count)]
        longer = [Call(n, "g", 90, False, False, None, after_us=1) for n in range(8)]
        return [ProcessCalls(None, 0, calls + longer)]

    assert pick_step([side((3, 2), 8)], [side((1, 1), 8)]) == ("f", True)
    assert pick_step([side((3, 2), 8)], [side((3, 2), 8)]) == ("g", False)
    assert pick_step([side((3, 2), 8)], [side((1, 1), 16)]) == ("g", False)
