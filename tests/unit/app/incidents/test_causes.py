"""Which graph breaks are of one statement."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compileboard.app.incidents.likely_causes import _merge_near
from compileboard.app.incidents.model import IncidentCause


def make_break(line: int | None, file: str = "m.py", kind: str = "graph_break") -> IncidentCause:
    return IncidentCause(
        kind=kind,
        text="",
        reason=f"{line}",
        file=file,
        line=line,
        source_line=None,
        function=None,
        break_id=None,
        cause_id=None,
        before=None,
        after=1,
        also=[],
        checks=[],
    )


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
def test_breaks_in_neighbouring_lines_are_one_cause(other: IncidentCause, count: int) -> None:
    merged = _merge_near([replace(make_break(10), after=2), other])

    assert len(merged) == count
    assert merged[0].also == ([other.reason] if count == 1 else [])
