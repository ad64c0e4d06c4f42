"""Two failures are the same by type and text, by signal, or by how an answer is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract.repros import ReproManifest, find_operation
from compileboard.collectors.repro import repro as failure
from compileboard.collectors.repro.repro import (
    Failure,
    captured_failure,
    raised,
    unwrap_error,
)
from compileboard.collectors.repro.rerun import read_failure
from compileboard.collectors.repro.trials import OUT_OF_MEMORY, TIMED_OUT, Outcome

CPP = """C++ compile error

Command:
g++ /tmp/x/ab.main.cpp -O3

Output:
/tmp/x/ab.main.cpp: In function 'void kernel()':
/tmp/x/ab.main.cpp:12:30: error: 'tmp17' was not declared in this scope
"""
LOWERING = """LoweringException: NotImplementedError: planted: padding of a dynamic size
  target: aten.constant_pad_nd.default
  args[0]: TensorBox(StorageBox(
"""


@pytest.mark.parametrize(
    ("error_type", "message"),
    [
        ("NotImplementedError", "planted: padding of a dynamic size"),
        (
            "LoweringException",
            "NotImplementedError: planted: padding of a dynamic size\n  target: aten.x",
        ),
        ("InductorError", LOWERING),
        ("BackendCompilerFailed", f"backend='inductor' raised:\nInductorError: {LOWERING}"),
    ],
)
def test_the_compilers_wrappers_are_taken_off(error_type: str, message: str) -> None:
    error = raised(error_type, message)
    assert (error.error_type, error.pattern) == (
        "NotImplementedError",
        "planted: padding of a dynamic size",
    )


@pytest.mark.parametrize(
    ("error_type", "prefix"),
    [
        ("AcceleratorError", "CUDA error: "),
        ("RuntimeError", "CUDA driver error: "),
        ("RuntimeError", "Triton Error [CUDA]: "),
    ],
)
def test_an_error_of_the_device_is_the_same_whoever_reports_it(
    error_type: str, prefix: str
) -> None:
    error = raised(error_type, f"{prefix}an illegal memory access was encountered\nSearch for it")
    assert error.is_same(
        raised("AcceleratorError", "CUDA error: an illegal memory access was encountered")
    )


def test_a_cpp_compilers_failure_is_told_by_its_own_first_error_without_numbers() -> None:
    first = raised("CppCompileError", CPP)
    second = raised("InductorError", "CppCompileError: " + CPP.replace("17", "3"))
    assert first.pattern == "C++ compile error: 'tmpN' was not declared in this scope"
    assert first.is_same(second)
    assert not first.is_same(
        raised("CppCompileError", CPP.replace("was not declared", "was not found"))
    )


def test_a_limit_that_was_reached_is_no_failure_of_the_graph() -> None:
    late = Failure(failure.TIMED_OUT)
    assert not late.fails and not late.is_same(late)


def test_a_signal_is_another_failure_than_another_signal() -> None:
    assert Failure(failure.SIGNAL, signal="SIGSEGV").is_same(
        Failure(failure.SIGNAL, signal="SIGSEGV")
    )
    assert not Failure(failure.SIGNAL, signal="SIGSEGV").is_same(
        Failure(failure.SIGNAL, signal="SIGABRT")
    )


def test_an_error_names_its_operation() -> None:
    assert find_operation(LOWERING) == "aten.constant_pad_nd.default"
    checked = (
        "expected size 8==16, stride 32==32 at dim=0\nError in op: torch.ops.mine.halve.default\n"
    )
    assert find_operation(checked) == "mine.halve.default"
    assert find_operation("out of registers") is None and find_operation(None) is None


@pytest.mark.parametrize(
    ("manifest", "described"),
    [
        (ReproManifest("crash", "aot", signal="SIGSEGV"), "the process dies of SIGSEGV"),
        (
            ReproManifest("accuracy", "aot", accuracy={"status": "not_finite"}),
            "NaN or infinity where eager has none",
        ),
        (
            ReproManifest("runtime", "aot", error_type="IndexError", message="index 9 is out"),
            "IndexError: index N is out",
        ),
    ],
)
def test_what_was_captured_is_described(manifest: ReproManifest, described: str) -> None:
    assert captured_failure(manifest).describe() == described


@given(st.text(), st.text())
def test_any_text_has_a_type_and_is_the_same_as_itself(error_type: str, message: str) -> None:
    assert isinstance(unwrap_error(error_type, message)[1], str)
    error = raised(error_type, message)
    assert error.is_same(Failure(**error.to_json()))


@pytest.mark.parametrize(
    ("signal", "status", "is_same"),
    [
        ("SIGTERM", TIMED_OUT, True),
        ("SIGKILL", OUT_OF_MEMORY, True),
        ("SIGTERM", OUT_OF_MEMORY, False),
        ("SIGSEGV", TIMED_OUT, False),
    ],
)
def test_what_was_ended_from_outside_reaches_a_limit_here(
    signal: str, status: str, is_same: bool
) -> None:
    expected = Failure(failure.SIGNAL, signal=signal)
    assert read_failure(Outcome(status), expected).is_same(expected) is is_same
