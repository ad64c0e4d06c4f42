"""Labels of compiles: what tells one from the others of its run, and no more than that."""

from hypothesis import given
from hypothesis import strategies as some

from compileboard.collectors.contract.compile_labels import (
    ProcessIdentity,
    build_label,
    label_function,
    label_line,
    label_role,
    name_processes,
)


def test_a_run_of_one_process_names_none():
    assert name_processes([ProcessIdentity("a", "suite/ranker/performance", 0, 7)]) == {"a": ""}


def test_models_are_named_first_then_experiments_then_ranks():
    processes = [
        ProcessIdentity("a", "zoo/encoder/performance", None, 1),
        ProcessIdentity("b", "zoo/ranker/performance", None, 2),
        ProcessIdentity("c", "zoo/ranker/accuracy", None, 3),
        ProcessIdentity("d", "zoo/org/name/accuracy", 0, 4),
        ProcessIdentity("e", "zoo/org/name/accuracy", 1, 5),
    ]
    names = [
        "encoder",
        "ranker · performance",
        "ranker · accuracy",
        "org/name · rank 0",
        "org/name · rank 1",
    ]
    assert list(name_processes(processes).values()) == names


def test_the_pid_tells_apart_what_nothing_else_does():
    processes = [ProcessIdentity("a", None, None, 1), ProcessIdentity("b", None, None, 2)]
    assert name_processes(processes) == {"a": "pid 1", "b": "pid 2"}


identities = some.builds(
    ProcessIdentity,
    some.text("abcdefgh", min_size=8, max_size=8),
    some.none() | some.sampled_from(["zoo/a/performance", "zoo/b/performance", "b", ""]),
    some.none() | some.integers(0, 2),
    some.none() | some.integers(1, 3),
)


@given(some.lists(identities, unique_by=lambda process: process.id, min_size=2, max_size=12))
def test_no_two_processes_of_a_run_share_a_name(processes):
    names = name_processes(processes)
    assert len(set(names.values())) == len(processes) == len(names)


def test_a_label_has_the_parts_that_are_known():
    assert (
        build_label(
            "ranker",
            label_function("Tower.forward", 22),
            label_line("train.py", 15),
            label_role("0/0"),
        )
        == "ranker · Tower.forward after the break at line 22 · train.py:15 · recompile"
    )
    assert build_label("", label_function(None), label_line(None, 3), label_role(None)) == (
        "unknown function · first compile"
    )
    assert label_role("0/1", "tensor_size") == "recompile: tensor size"
