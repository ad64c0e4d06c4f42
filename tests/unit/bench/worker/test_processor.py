"""A run of `bench` asks the compiler once what the processor can do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from compileboard.collectors.bench.worker.torch_setup import cache_build_checks


def make_instructions(asked: list[str]) -> Any:
    """Make a class as torch's VecISA is: its check compiles a program for the flags of one set of
    instructions.
    """

    class Instructions:
        def __init__(self, flags: str) -> None:
            self._arch_flags = flags

        def check_build(self, code: str) -> bool:
            asked.append(f"{self._arch_flags} {code}")
            return "avx512" not in self._arch_flags

    return Instructions


def ask(path: Path, asked: list[str], *questions: tuple[str, str]) -> list[bool]:
    instructions = make_instructions(asked)  # each process has a class of its own
    cache_build_checks(instructions, path)
    return [instructions(flags).check_build(code) for flags, code in questions]


def test_a_second_process_asks_only_what_is_new(tmp_path: Path) -> None:
    path, asked = tmp_path / "processor.json", list[str]()
    assert ask(path, asked, ("-mavx2", "exp"), ("-mavx512f", "exp")) == [True, False]
    assert ask(path, asked, ("-mavx512f", "exp"), ("-mavx2", "exp"), ("-mavx2", "dot")) == [
        False,
        True,
        True,
    ]
    assert asked == ["-mavx2 exp", "-mavx512f exp", "-mavx2 dot"]
    assert sorted(json.loads(path.read_text()).values()) == [False, True, True]


def test_a_file_that_was_cut_off_is_asked_for_again(tmp_path: Path) -> None:
    path, asked = tmp_path / "processor.json", list[str]()
    path.write_text('{"cut')
    assert ask(path, asked, ("-mavx2", "exp"), ("-mavx2", "exp")) == [True, True]
    assert len(asked) == 1 and [file.name for file in tmp_path.iterdir()] == ["processor.json"]
