"""What compiled code raises while it runs, and what ends a program: each once, with its compile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tools.observed import PROGRAMS, Workplace, torch_release

pytestmark = pytest.mark.torch
RAISING = PROGRAMS / "raising.py"
FAILURES = """
select
  phase, failures.compile_id, compiles.compile_id as compile, compiles.generation, occurrence_count,
  ended_program,
  error_type, message, functions.name as function, functions.file, failures.line
from failures
left join compiles on compiles.id = compile_key
left join functions on functions.id = failures.function_id
order by failures.id
"""


@pytest.fixture(scope="module")
def caught(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """Observe a program that catches all that its compiled code raises."""
    workplace = Workplace(tmp_path_factory.mktemp("caught"))
    finished = workplace.run(
        RAISING, "eager", "cpp", "tangent", "wrapper", "nested", "checkpointed", "after_reset"
    )
    assert (finished.returncode, finished.stdout) == (0, "went on to its end\n"), finished.stderr
    return workplace


def ended(workplace: Workplace, *words: str, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    """Observe a program that its exception ends, and check that it says what it says without us."""
    finished, plain = (
        workplace.run(RAISING, "end", *words, **options),
        workplace.plain(RAISING, "end", *words),
    )
    message = finished.stderr[: len(plain.stderr)]  # what `run` itself says comes after it
    assert plain.stderr in finished.stderr, message
    assert finished.returncode == plain.returncode
    return finished, workplace.rows(FAILURES)


def test_what_compiled_code_raises_is_recorded_once_each(caught: Workplace) -> None:
    rows = caught.rows(FAILURES)
    tangent = "RuntimeError" if torch_release() >= (2, 6) else "AssertionError"
    assert [(row["phase"], row["error_type"], row["occurrence_count"]) for row in rows] == [
        ("forward", "IndexError", 10_000),
        ("forward", "RuntimeError", 1),  # inductor's generated code
        ("backward", tangent, 1),
        ("wrapper", "RuntimeError", 1),
        ("forward", "IndexError", 1),  # passed two compiled callables
        ("backward", tangent, 1),
    ]
    assert (caught.only_run()["state"], caught.only_run()["failure_count"]) == ("finished", 6)


def test_a_failure_knows_its_compile_and_the_programs_line(caught: Workplace) -> None:
    rows = caught.rows(FAILURES)
    assert all(row["compile"] == row["compile_id"] is not None for row in rows)
    assert rows[-1]["generation"] == 0  # that of the code, not of the reset() since
    assert {row["file"] for row in rows} == {"tests/programs/raising.py"}
    assert caught.value("select max(generation) from compiles") == 2
    assert rows[0]["function"] == "pick"
    assert "index out of bounds" in rows[1]["message"]
    assert rows[3]["message"].startswith("Output 0 of Unbind")


def test_a_traceback_is_the_programs_own_from_its_first_line(caught: Workplace) -> None:
    events = caught.events("runtime_failed")
    event = events[0]
    assert event["text"].startswith('Traceback (most recent call last):\n  File "')
    assert "in <module>" in event["text"].split("\n")[1]
    assert "<eval_with_key>" in event["text"]
    assert not any("raised.py" in event["text"] for event in events)


def test_ten_thousand_repetitions_are_few_records(caught: Workplace) -> None:
    counts = [
        event["occurrence_count"]
        for event in caught.events("runtime_failed")
        if event["position"] == 0
    ]
    assert counts == [2**power for power in range(14)] + [10_000]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("word", "phase", "error_type", "compile_id"),
    [
        ("eager", "forward", "IndexError", "0/0"),
        ("backend", "compile", "BackendCompilerFailed", "0/0"),
        ("unrelated", "program", "ValueError", None),
    ],
)
def test_what_ends_a_program_is_recorded_once(
    workplace: Workplace, word: str, phase: str, error_type: str, compile_id: str | None
) -> None:
    finished, rows = ended(workplace, word)
    assert finished.returncode == 1
    (row,) = rows
    assert (row["phase"], row["error_type"], row["compile_id"]) == (phase, error_type, compile_id)
    assert (row["ended_program"], row["occurrence_count"]) == (1, 1)
    assert b"hunter2" not in caught_bytes(workplace)


def caught_bytes(workplace: Workplace) -> bytes:
    """Return what is stored of failures: argv and environment have tests of their own."""
    return "".join(str(event) for event in workplace.events("runtime_failed")).encode()


def test_leaving_by_sys_exit_is_no_failure(workplace: Workplace) -> None:
    finished, rows = ended(workplace, "leave")
    assert (finished.returncode, rows) == (3, [])


@pytest.mark.nightly
def test_a_worker_that_ends_by_compiled_code_says_so(workplace: Workplace) -> None:
    finished = workplace.run(RAISING, "worker")
    assert "the worker ended with 1" in finished.stdout
    (row,) = workplace.rows(FAILURES)
    assert (row["phase"], row["error_type"], row["ended_program"]) == ("forward", "IndexError", 1)
    assert row["compile"] == "0/0"


def test_dynamo_never_compiles_what_stands_around_a_backward(workplace: Workplace) -> None:
    finished = workplace.run(RAISING, "in_compiled")
    assert finished.returncode == 0, finished.stderr
    assert workplace.rows(FAILURES) == []
    names = {row["name"] for row in workplace.rows("select distinct name from functions")}
    assert not any("watched" in name for name in names)
    assert any("step" in name for name in names)


@pytest.mark.nightly
def test_no_source_keeps_no_line_in_a_traceback(workplace: Workplace) -> None:
    ended(workplace, "unrelated", options=("--no-source",))
    (event,) = workplace.events("runtime_failed")
    assert "<source withheld " in event["text"]
    assert "yield lambda" not in event["text"]


@pytest.mark.parametrize(
    "backend", ["inductor", pytest.param("aot_eager", marks=pytest.mark.nightly)]
)
def test_a_double_backward_is_a_failure_of_its_compile(workplace: Workplace, backend: str) -> None:
    path = workplace.write(
        f"""
        import torch
        x = torch.randn(4, requires_grad=True)
        y = torch.compile(lambda x: (x.sin() ** 3).sum(), backend={backend!r})(x)
        (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        try:
            gradient.sum().backward()
        except RuntimeError as error:
            print(error)
        """
    )
    done = workplace.run(path)
    assert "does not currently support double backward" in done.stdout, done.stderr
    (failure,) = workplace.rows(FAILURES)
    assert (failure["phase"], failure["compile"], failure["error_type"]) == (
        "backward",
        "0/0",
        "RuntimeError",
    )
    assert workplace.only_run()["failure_count"] == 1


COUNTS = "select failure_count, (select count(*) from failures) as rows_count from run_totals"
ABORTED = """
    import torch

    def interrupted(graph, inputs):
        raise KeyboardInterrupt

    try:
        torch.compile(lambda x: x + 1, backend=interrupted)(torch.ones(2))
    except KeyboardInterrupt:
        torch.compile(lambda x: x + 2, backend="eager")(torch.ones(2))
"""


def test_a_compile_that_an_interruption_ended_is_a_failure(workplace: Workplace) -> None:
    done = workplace.run(workplace.write(ABORTED))
    assert "2 compiles, 0 graph breaks, 0 recompiles, 1 failure" in done.stderr
    assert workplace.rows(COUNTS) == [{"failure_count": 1, "rows_count": 1}]
    outcomes = workplace.rows("select outcome from compiles order by id")
    assert [row["outcome"] for row in outcomes] == ["failed", "compiled"]


OFF = """
    import torch
    {set}
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
"""


@pytest.mark.parametrize(
    ("set", "variables", "named"),
    [
        ("", {"TORCHDYNAMO_DISABLE": "1"}, "TORCHDYNAMO_DISABLE=1"),
        (
            'torch.compiler.set_stance("force_eager")',
            {},
            'torch.compiler.set_stance("force_eager")',
        ),
    ],
)
@pytest.mark.nightly
def test_a_program_that_turned_compiling_off_says_so(
    workplace: Workplace, set: str, variables: dict[str, str], named: str
) -> None:
    done = workplace.run(workplace.write(OFF.format(set=set)), env=variables)
    assert f"nothing was compiled: compiling is turned off by {named}" in done.stderr
    shown = workplace.collect("show", "--db", workplace.database, "latest").stdout
    assert f"turned off by {named}" in " ".join(shown.split())
