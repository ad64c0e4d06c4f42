"""The graph that ran when a process died becomes one of its records."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.record.crashes import OUTSIDE, promote_crashes

LINES = [
    json.dumps({"s": n, "n": "repro", "m": {"manifest": {"kind": "crash", "n": n}}}) + "\n"
    for n in (3, 4)
]


def leave(folder: Path, running: bytes, graphs: str = "".join(LINES), name: str = "p") -> None:
    (folder / f"{name}.jsonl").write_text('{"s":0}\n{"s":1,"half')
    (folder / f"{name}.running").write_bytes(running)
    (folder / f"{name}.graphs").write_text(graphs)


def promoted(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "p.jsonl").read_text().splitlines()[2:]
    return [json.loads(line)["m"]["manifest"] for line in lines if line]


def test_the_graph_that_ran_is_moved_with_its_signal(tmp_path: Path) -> None:
    second = len(LINES[0]) + 1
    leave(tmp_path, struct.pack("qq", second, second))
    assert promote_crashes(tmp_path, "SIGSEGV") == 1
    assert promoted(tmp_path) == [{"kind": "crash", "n": 4, "signal": "SIGSEGV"}]
    assert {path.name for path in tmp_path.iterdir()} == {"p.jsonl"}
    assert promote_crashes(tmp_path, "SIGSEGV") == 0


def test_outside_a_graph_the_last_one_is_said_to_be_the_last(tmp_path: Path) -> None:
    leave(tmp_path, struct.pack("qq", 0, 1))
    assert promote_crashes(tmp_path, "SIGABRT") == 1
    assert promoted(tmp_path) == [
        {"kind": "crash", "n": 3, "signal": "SIGABRT", "message": OUTSIDE}
    ]


def test_without_a_signal_nothing_died_in_a_graph_that_was_done(tmp_path: Path) -> None:
    leave(tmp_path, struct.pack("qq", 0, 1))
    assert promote_crashes(tmp_path, None) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"p.jsonl"}


def test_values_follow_their_graph_and_may_be_of_an_earlier_call(tmp_path: Path) -> None:
    values = [
        json.dumps({"s": n, "n": "repro_values", "m": {"digest": str(n)}, "p": "x"}) + "\n"
        for n in (5, 6)
    ]
    leave(tmp_path, struct.pack("qq", -1, -1), "".join((LINES[0], *values, LINES[1])))
    assert promote_crashes(tmp_path, "SIGSEGV") == 1
    records = [
        json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()[2:] if line
    ]
    assert [record["s"] for record in records] == [3, 5, 6]
    assert records[0]["m"]["manifest"] == {
        "kind": "crash",
        "n": 3,
        "signal": "SIGSEGV",
        "has_earlier_values": True,
    }


def test_of_several_processes_none_is_given_the_runs_signal(tmp_path: Path) -> None:
    leave(tmp_path, struct.pack("qq", 1, 1))
    leave(tmp_path, struct.pack("qq", 1, 1), name="q")
    assert promote_crashes(tmp_path, "SIGKILL") == 2
    assert "signal" not in promoted(tmp_path)[0]


@pytest.mark.parametrize(
    ("running", "graphs"),
    [
        (b"", "x"),
        (b"\xff" * 16, "x"),
        (struct.pack("qq", 1, 1), "{"),
        (struct.pack("qq", 10**9, 1), "{}\n"),
    ],
)
def test_damaged_files_cost_nothing_else(tmp_path: Path, running: bytes, graphs: str) -> None:
    leave(tmp_path, running, graphs)
    assert promote_crashes(tmp_path, "SIGSEGV") == 0
    assert (tmp_path / "p.jsonl").read_text() == '{"s":0}\n{"s":1,"half'
