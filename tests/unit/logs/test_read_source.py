from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.contract.events import (
    CompileStarted,
    GraphBroke,
    GuardFailure,
    Recompiled,
)
from compileboard.collectors.decode.records import PathNamer
from compileboard.collectors.logs.read_source import SourceReader

LATER_US = 4_000_000_000_000_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text("".join(f"line{number} = {number}\n" for number in range(1, 31)))
    return path


def _break(line: int, code: str | None = None, time_us: int = LATER_US) -> GraphBroke:
    return GraphBroke("p", 1, time_us, file="model.py", line=line, source_line=code)


def _reader(path: Path, **more: Any) -> SourceReader:
    namer = PathNamer([str(path.parent)])
    assert namer.name(str(path)) == "model.py"
    return SourceReader(namer, **more)


def test_ten_lines_around_a_break_are_read_once(source: Path) -> None:
    reader = _reader(source)
    (excerpt,) = reader.read([_break(10, "line10 = 10"), _break(10)])
    assert (excerpt.first_line, len(excerpt.lines), excerpt.lines[4]) == (6, 10, "line10 = 10")
    reader.unsaved.clear()
    assert reader.read([_break(10)]) == []
    assert [part.first_line for part in reader.read([_break(1), _break(30), _break(99)])] == [1, 26]


def test_a_function_is_read_whole_and_only_text_in_it_can_be_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    code = [
        "@compiled",
        "def step(token):",
        "    token = pick(token)",
        "    password = 82641357",
        "    key = TRIPLE",
        "TOKEN=abc",
    ]
    code += ["TRIPLE", "    api_key = 'abc'", *["    token += 1"] * 9, "    return token"]
    path.write_text(
        "\n".join(["import torch", "", *code, "", "other = 1"]).replace("TRIPLE", '"' * 3)
    )
    (excerpt,) = _reader(path).read([_break(5)])
    assert (excerpt.first_line, len(excerpt.lines)) == (3, len(code))
    assert excerpt.lines[2] == "    token = pick(token)"
    assert not any(secret in "".join(excerpt.lines) for secret in ("abc", "82641357"))


def test_a_recompiled_function_and_its_guards_are_read(source: Path) -> None:
    start = {"file": "torch/_dynamo/external_utils.py", "line": 67, "frame_compile_id": 1}
    stack = [
        {"file": "model.py", "line": 12, "code": "line12 = 12"},
        {"file": "torch/_dynamo/eval_frame.py", "line": 1},
    ]
    guard = GuardFailure(
        "0/0", "k == 1", "int_value", file="model.py", line=20, source_line="line20 = 20"
    )
    events = [
        CompileStarted("p", 1, LATER_US, **start, stack=stack),
        Recompiled("p", 2, LATER_US, guards=[guard]),
    ]
    assert [part.first_line for part in _reader(source).read(events)] == [8, 16]
    first = CompileStarted("p", 1, LATER_US, file="model.py", line=3, frame_compile_id=0)
    assert _reader(source).read([first]) == []  # it was not recompiled


def test_a_file_that_is_not_the_one_that_ran_is_not_read(source: Path) -> None:
    assert _reader(source).read([_break(10, "another line")]) == []
    assert _reader(source).read([_break(10, time_us=1)]) == []
    assert _reader(source, accepts=lambda path: False).read([_break(10)]) == []
    source.write_bytes(b"# coding: nonsense\n\xff\xfe\n")
    os.utime(source, (1, 1))
    assert _reader(source).read([_break(1)]) == []


def test_secrets_of_the_source_are_withheld(source: Path) -> None:
    source.write_text("api_key = 'sk-0123456789abcdef0123'\nx = 1\n")
    (excerpt,) = _reader(source).read([_break(2)])
    assert excerpt.lines[0] == "api_key = <withheld>"
    assert excerpt.lines[1] == "x = 1"
