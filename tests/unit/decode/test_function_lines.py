"""Functions are named after the frame that runs a line, by the sources it lies in."""

from __future__ import annotations

from pathlib import Path

import pytest

from compileboard.collectors.decode.break_texts import parse_break
from compileboard.collectors.decode.records import PathNamer, qualify

SOURCE = """\
class Net:
    def forward(self, x):
        @scaled(
            3)
        def local(z, scale=one()):
            return [z for _ in range(scale)]
        return local(x)
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("line", "name", "qualified"),
    [
        (
            3,
            "local",
            "Net.forward.<locals>.local",
        ),  # where torch says that a decorated function begins
        (4, "forward", "Net.forward"),
        (5, "forward", "Net.forward"),
        (6, "local", "Net.forward.<locals>.local"),
        (6, "<listcomp>", "Net.forward.<locals>.local"),
        (7, "forward", "Net.forward"),
        (7, "another", None),
    ],
)
def test_qualify_names_the_function_that_runs_the_line(
    source: str, line: int, name: str, qualified: str | None
) -> None:
    assert qualify(source, line, name) == qualified


def test_break_in_a_decorator_of_an_inner_function_is_the_outer_functions(source: str) -> None:
    text = f'Graph break: no\nUser code traceback:\n  File "{source}", line 4, in forward\n    3)\n'
    assert parse_break(text, PathNamer(), qualify)["function"] == "Net.forward"
