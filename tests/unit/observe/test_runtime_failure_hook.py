"""What stands around compiled code: invisible to the program, bounded, and once."""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from compileboard.collectors.observe import runtime_failures
from compileboard.collectors.observe.hook_guard import HookGuard

PLACE: runtime_failures.Origin = ([None, 0, 0, 0, None], 5)


class Recorder:
    """Records what would be written."""

    def __init__(self) -> None:
        self.losses: Counter[str] = Counter()
        self.written: list[tuple[dict[str, Any], str | None]] = []
        self.failures = runtime_failures.RuntimeFailures(self._write, HookGuard(self.losses), str)

    def _write(self, fields: dict[str, Any], text: str | None, context: object) -> None:
        self.written.append((fields, text))


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    runtime_failures.watch(made.failures)
    yield made
    runtime_failures.watch(None)


def fail(error: BaseException) -> None:
    raise error


def call(compiled: Any, *arguments: Any) -> BaseException:
    try:
        compiled(*arguments)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_the_program_sees_its_own_traceback(recorder: Recorder) -> None:
    error = call(runtime_failures.watch_failures(fail, "forward", PLACE), ValueError("x"))
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] == ["call", "fail"]
    ((fields, text),) = recorder.written
    assert (fields["phase"], fields["error_type"], fields["message"]) == (
        "forward",
        "ValueError",
        "x",
    )
    assert text is not None and "in call" in text and "in fail" in text and "in watched" not in text


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_what_is_no_failure_passes_unrecorded(recorder: Recorder, error: BaseException) -> None:
    assert call(runtime_failures.watch_failures(fail, "forward", PLACE), error) is error
    assert recorder.written == []


def test_nested_callables_record_an_exception_once_also_when_it_is_wrapped(
    recorder: Recorder,
) -> None:
    def wrap(error: Exception) -> None:
        try:
            runtime_failures.watch_failures(fail, "forward", PLACE)(error)
        except ValueError as inner:
            raise RuntimeError("outer") from inner

    call(
        runtime_failures.watch_failures(
            runtime_failures.watch_failures(wrap, "forward", PLACE), "backward", PLACE
        ),
        ValueError("x"),
    )
    assert len(recorder.written) == 1


def test_an_exception_raised_while_another_is_handled_is_its_own(recorder: Recorder) -> None:
    watched = runtime_failures.watch_failures(fail, "forward", PLACE)

    def handle() -> None:
        try:
            watched(ValueError("first"))
        except ValueError:
            watched(KeyError("second"))

    call(handle)
    assert [fields["error_type"] for fields, _ in recorder.written] == ["ValueError", "KeyError"]


def test_repetitions_are_counted_and_the_last_count_is_written(recorder: Recorder) -> None:
    watched = runtime_failures.watch_failures(fail, "forward", PLACE)
    for number in range(11):
        call(watched, ValueError(number))
    recorder.failures.end()
    recorder.failures.end()
    assert [fields.get("occurrence_count", 1) for fields, _ in recorder.written] == [1, 2, 4, 8, 11]


def test_failures_of_a_process_are_bounded(recorder: Recorder) -> None:
    for number in range(runtime_failures.MAX_FAILURES + 5):
        call(runtime_failures.watch_failures(fail, "forward", (None, number)), ValueError("x"))
    assert len(recorder.written) == runtime_failures.MAX_FAILURES
    assert list(recorder.losses.values()) == [5]


def test_texts_are_cut_and_secrets_withheld(recorder: Recorder) -> None:
    message = f"token=hunter2hunter2 {'x' * 200_000} the end"
    call(runtime_failures.watch_failures(fail, "forward", PLACE), ValueError(message))
    ((fields, text),) = recorder.written
    assert len(fields["message"]) < runtime_failures.MESSAGE_CHARS + 100 and fields[
        "message"
    ].endswith("the end")
    assert text is not None and len(text) < runtime_failures.TEXT_CHARS + 100
    assert "hunter2" not in text + fields["message"]


def test_an_exception_that_cannot_be_printed_or_marked_is_recorded(recorder: Recorder) -> None:
    class Closed(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError(name)

    call(runtime_failures.watch_failures(fail, "forward", PLACE), Closed())
    assert [(fields["error_type"], fields["message"]) for fields, _ in recorder.written] == [
        ("Closed", "<an exception that cannot be printed>")
    ]
    assert not recorder.losses


@pytest.mark.parametrize(
    "answer", [lambda name: name, lambda name: 1 // 0], ids=["anything", "raises"]
)
def test_an_exception_whose_class_answers_to_any_name_is_recorded_once(
    recorder: Recorder, answer: Any
) -> None:
    odd = type("Odd", (Exception,), {"__getattr__": lambda self, name: answer(name)})
    error = call(
        runtime_failures.watch_failures(
            runtime_failures.watch_failures(fail, "forward", PLACE), "backward", PLACE
        ),
        odd("words"),
    )
    recorder.failures.end(error)
    (fields, text), (ended, _) = recorder.written
    assert (fields["phase"], fields["error_type"], ended["ended_program"]) == (
        "forward",
        "Odd",
        True,
    )
    assert text is not None and "in fail" in text and "Odd: words" in text
    assert not recorder.losses


def test_control_flow_of_torchs_is_no_failure(recorder: Recorder) -> None:
    stop = type("_StopRecomputationError", (Exception,), {})
    call(runtime_failures.watch_failures(fail, "forward", PLACE), stop())
    assert recorder.written == []


def test_what_ended_the_program_is_marked_and_a_workers_is_not_ours(recorder: Recorder) -> None:
    error = call(runtime_failures.watch_failures(fail, "forward", PLACE), ValueError("x"))
    recorder.failures.end(error)
    assert [fields["ended_program"] for fields, _ in recorder.written] == [False, True]
    setattr(error, runtime_failures.MARK, (-1, 0, None))  # as it comes out of another process
    recorder.failures.end(error)
    assert len(recorder.written) == 2


def test_only_what_went_through_the_programs_first_line_ended_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ends(name: str, function: str) -> BaseException | None:
        scope: dict[str, Any] = {"__name__": name}
        exec(compile("def f():\n    1 / 0\n", "<test>", "exec"), scope)
        code = scope["f"].__code__.replace(co_name=function)
        error = call(lambda: exec(code, scope))
        error.__traceback__ = error.__traceback__.tb_next.tb_next  # type: ignore[union-attr]
        monkeypatch.setattr(sys, "last_value", error, raising=False)
        return runtime_failures.find_end()

    assert isinstance(ends("__main__", "<module>"), ZeroDivisionError)
    assert isinstance(ends("runpy", "_run_module_as_main"), ZeroDivisionError)
    assert (
        ends("_pytest.runner", "pytest_runtest_call") is None
    )  # a test runner keeps what a test raised
    assert ends("a.module", "<module>") is None


def test_a_traceback_finds_the_compile_of_a_frame_that_dynamo_wrote() -> None:
    def disable(fn: Any) -> Any:
        def _fn(*args: Any) -> Any:
            return fn(*args)

        _fn._torchdynamo_orig_callable = fn  # type: ignore[attr-defined]
        return _fn

    graph = disable(runtime_failures.watch_failures(len, "forward", PLACE))
    scope = {"__compiled_fn_1_ab": graph}
    exec("def frame(x):\n    y = __compiled_fn_1_ab(x)\n    raise ValueError(y)", scope)
    error = call(scope["frame"], "abc")
    assert runtime_failures.find_origin(error.__traceback__) == PLACE
    assert runtime_failures.find_origin(call(fail, ValueError()).__traceback__) == (None, 0)
