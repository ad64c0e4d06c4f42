"""What was answered is read back; a line that was cut off costs that line alone."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compileboard.collectors.repro.minify.torch_minifier import QueryLog
from compileboard.collectors.repro.repro import Failure


def test_an_answer_is_there_for_the_next_search(tmp_path: Path) -> None:
    path = tmp_path / "queries.jsonl"
    answer = Failure("raised", "KeyError", "'x'")
    QueryLog(path).add("a", answer)
    assert QueryLog(path).find("a") == answer
    assert QueryLog(path).find("b") is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 400))
def test_a_file_that_was_cut_off_anywhere_is_read_and_written_on(
    tmp_path: Path, length: int
) -> None:
    path = tmp_path / "queries.jsonl"
    path.unlink(missing_ok=True)
    for number in range(4):
        QueryLog(path).add(f"k{number}", Failure("passed"))
    path.write_bytes(path.read_bytes()[:length])
    QueryLog(path).add("last", Failure("signal", signal="SIGSEGV"))
    read = QueryLog(path)
    assert read.find("last") == Failure("signal", signal="SIGSEGV")
    assert all(read.find(f"k{number}") in (None, Failure("passed")) for number in range(4))


def test_other_text_in_the_file_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "queries.jsonl"
    path.write_bytes(b'\xff\x00\n[1]\n{"key": 1}\n{"key": "a", "failure": {"other": 1}}\n')
    assert QueryLog(path).find("a") is None


def test_a_limit_that_was_reached_is_asked_again_and_all_can_be_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "queries.jsonl"
    log = QueryLog(path)
    log.add("late", Failure("timed_out"))
    log.add("a", Failure("passed"))
    read = QueryLog(path)
    assert read.find("late") is None and read.find("a") is not None
    read.forget()
    assert read.find("a") is None and not path.exists()
