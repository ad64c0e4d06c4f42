"""Which graph breaks are of one statement."""

from __future__ import annotations

from typing import Any

import pytest

from compileboard.app.incidents.causes import _merge_near


def make_break(line: int | None, **facts: Any) -> dict[str, Any]:
    return {
        "kind": "graph_break",
        "file": "m.py",
        "line": line,
        "after": 1,
        "reason": f"{line}",
        "also": [],
    } | facts


@pytest.mark.parametrize(
    ("other", "count"),
    [
        (make_break(10), 1),
        (make_break(11), 1),
        (make_break(9), 1),
        (make_break(12), 2),
        (make_break(8), 2),
        (make_break(None), 2),
        (make_break(10, file="n.py"), 2),
        (make_break(10, kind="recompile"), 2),
    ],
)
def test_breaks_in_neighbouring_lines_are_one_cause(other: dict[str, Any], count: int) -> None:
    merged = _merge_near([make_break(10, after=2), other])

    assert len(merged) == count
    assert merged[0]["also"] == ([other["reason"]] if count == 1 else [])
