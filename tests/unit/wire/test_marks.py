"""Marks, written and read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compileboard.collectors.contract.rejects import Rejects
from compileboard.collectors.wire.lines import UnknownLine, WireError, list_digests, read_line
from compileboard.collectors.wire.marks import (
    Heartbeat,
    LogRead,
    Mark,
    SourceRead,
    SpoolRejects,
    StreamEnd,
    TracePieces,
    dump_mark,
    load_mark,
)


def rejects(**counts: int) -> Rejects:
    made = Rejects()
    for kind, count in counts.items():
        made.add(kind, 7, "a line", count)
    return made


MARKS: list[Mark] = [
    Heartbeat("1.0", 3),
    LogRead("p", "a.log", 50, 4, 3, 17, rejects(bad_json=2)),
    SourceRead([("train.py", 4, ("a", "b"))]),
    SpoolRejects("p.jsonl", rejects(refused=1)),
    TracePieces("a.log", 5, 0, ["0" * 32]),
    StreamEnd(500, 1 << 31),
]


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: mark.MARK)
def test_a_mark_comes_back(mark: Mark) -> None:
    body = read_line(dump_mark(mark))
    assert load_mark(body) == mark
    assert list_digests(body) == (["0" * 32] if isinstance(mark, TracePieces) else [])
    assert load_mark({**body, "later": 1}) == mark


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: mark.MARK)
@pytest.mark.parametrize(
    "value", [-1, 2**63, "\x00", [5], {"bad_json": 1}, {"no": [1, 2, ""]}, [["f", -1, []]], True]
)
def test_a_mark_with_a_wrong_value_is_refused(mark: Mark, value: Any) -> None:
    body = json.loads(dump_mark(mark))
    for name in vars(mark):
        if isinstance(value, str) and isinstance(body[name], str):
            continue
        with pytest.raises(WireError, match=f"{name} is"):
            load_mark({**body, name: value})


def test_a_mark_that_nobody_knows_is_a_newer_collectors() -> None:
    with pytest.raises(UnknownLine, match="known: beat"):
        load_mark({"v": 1, "mark": "later"})
    with pytest.raises(WireError, match="lacks a value"):
        load_mark({"v": 1, "mark": "end"})


def test_a_torn_end_of_a_log_counts_once() -> None:
    log = LogRead("p", "a.log").advance(10, 1, 1, 5, rejects(truncated=1, bad_json=1))
    log = log.advance(30, 3, 2, None, rejects(bad_json=1))
    assert (log.end_bytes, log.record_count, log.last_us) == (30, 3, 5)
    assert {kind: reject.count for kind, reject in log.rejects.by_kind.items()} == {"bad_json": 2}
