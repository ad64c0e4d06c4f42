"""Counts with their nouns."""

from __future__ import annotations

from compileboard.collectors.terminal.progress_line import counts_text
from compileboard.collectors.terminal.values import count_text


def test_one_of_a_thing_is_not_called_many() -> None:
    assert [count_text(number, "result") for number in (0, 1, 2)] == [
        "0 results",
        "1 result",
        "2 results",
    ]
    assert counts_text(1, 0, 2) == "1 compile, 0 graph breaks, 2 recompiles"
