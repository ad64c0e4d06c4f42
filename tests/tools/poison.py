"""Spoil a spool that a run left behind: one bad line, file or fact each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

FREE = 1_000_000  # a sequence number that no record of a test's spool has
DEEP = 100_000


def envelope(**changes: Any) -> bytes:
    """Write a record that is good but for its changes; `...` leaves a field out."""
    record = {"s": FREE, "t": 1, "n": "dynamo_start", "m": {"stack": []}, **changes}
    return json.dumps({key: value for key, value in record.items() if value is not ...}).encode()


def _record(name: str, metadata: Any, payload: Any = None) -> bytes:
    return json.dumps(
        {"s": FREE, "t": 2, "n": name, "m": metadata, "p": payload, "c": [None, 0, 0, 0, None]}
    ).encode()


# Lines that are no record: each is one reject.
BAD_LINES: dict[str, bytes] = {
    "s is Infinity": b'{"s":Infinity,"t":1,"n":"x"}',
    "s is -Infinity": b'{"s":-Infinity,"t":1,"n":"x"}',
    "s is NaN": b'{"s":NaN,"t":1,"n":"x"}',
    "s beyond 63 bits": envelope(s=2**63),
    "s at the end of 63 bits": envelope(s=2**63 - 1),
    "s is a float": envelope(s=1.5),
    "s is below 0": envelope(s=-1),
    "s is a text": envelope(s="1"),
    "s is true": envelope(s=True),
    "s is missing": envelope(s=...),
    "s has 5,000 digits": b'{"s":' + b"9" * 5000 + b',"t":1,"n":"x"}',
    "t is 1e999": b'{"s":1000000,"t":1e999,"n":"x"}',
    "t beyond 63 bits": envelope(t=2**63),
    "t is a list": envelope(t=[1]),
    "t is null": envelope(t=None),
    "t is missing": envelope(t=...),
    "n is a number": envelope(n=5),
    "n is empty": envelope(n=""),
    "n is an object": envelope(n={"a": 1}),
    "n is missing": envelope(n=...),
    "c is a text": envelope(c="0/0"),
    "c is an object": envelope(c={"frame_id": 0}),
    "c is short": envelope(c=[0, 1]),
    "c is long": envelope(c=[None, 0, 0, 0, None, 7]),
    "c holds a text": envelope(c=[None, "x", 0, 0, None]),
    "c holds a list": envelope(c=[None, [0], 0, 0, None]),
    "c holds an object": envelope(c=[None, 0, {}, 0, None]),
    "c holds a float": envelope(c=[None, 0.5, 0, 0, None]),
    "c holds Infinity": b'{"s":1000000,"t":1,"n":"dynamo_start","c":[null,0,Infinity,0,null]}',
    "c beyond 63 bits": envelope(c=[None, 0, 0, 0, 2**63]),
    "x is a text": envelope(x="qualname"),
    "x is a list": envelope(x=[1]),
    "100,000 nested lists": b"[" * DEEP,
    "100,000 nested lists in a record": b'{"s":1000000,"t":1,"n":"x","m":'
    + b"[" * DEEP
    + b"]" * DEEP
    + b"}",
    "100,000 nested objects": b'{"a":' * DEEP,
    "a number": b"5",
    "a list": b"[1, 2]",
    "a text": b'"record"',
    "null": b"null",
    "an empty object": b"{}",
    "half a record": b'{"s":1000000,"t":1,"n":"dyna',
    "two records": envelope() + envelope(),
    "zero bytes": b"\0" * 200,
    "no UTF-8": b'{"s":1000000,"t":1,"n":"caf\xe9"}',
    "UTF-16": '{"s":1000000,"t":1}'.encode("utf-16"),
    "no JSON": b"Traceback (most recent call last):",
}
# Records whose values are odd: what fits of each is kept.
ODD_RECORDS: dict[str, bytes] = {
    "losses is a list": _record("snapshot", {"losses": [1]}),
    "losses holds texts": _record("snapshot", {"losses": {"spool: disk full": "many"}}),
    "losses is below 0": _record("snapshot", {"losses": {"spool: disk full": -5}}),
    "counters is a list": _record("snapshot", {"counters": [1]}),
    "final is a text": _record("snapshot", {"final": "no"}),
    "restart_reasons is 1.5": _record("compilation_metrics", {"restart_reasons": 1.5}),
    "guard_count beyond 63 bits": _record("compilation_metrics", {"guard_count": 2**70}),
    "duration_us is an object": _record("compilation_metrics", {"duration_us": {}}),
    "metrics are a list": _record("compilation_metrics", [1, 2]),
    "metrics hold NaN": _record("compilation_metrics", {"guard_latency_us": float("nan")}),
    "pid is a text": _record("process_started", {"run_id": "R", "pid": "many"}),
    "argv is a number": _record("process_started", {"run_id": "R", "pid": 1, "argv": 5}),
    "another run's id": _record("process_started", {"run_id": [], "pid": 1}),
    "frames are numbers": _record("dynamo_start", {"stack": [1, None, "x"]}),
    "a break is an object": _record("artifact:dynamo_graph_break_reason", None, {"reason": 1}),
    "reasons are a number": _record("artifact:recompile_reasons", None, 7),
    "an error is a list": _record("artifact:dynamo_error", None, [[]]),
    "a cache key is a list": _record(
        "artifact:fx_graph_cache_miss", None, {"key": [1], "time_taken_ns": "x"}
    ),
    "a config is a number": _record("config", {"config_hash": 5, "config_kind": [], "body": None}),
    "a run's start": _record("run_started", {"run_id": "R", "name": [], "tags": [1]}),
    "a run's end": _record("run_ended", {"run_id": "R", "state": {}, "exit_code": "x"}),
    "a run's start that fits": _record("run_started", {"run_id": "LEFT", "name": "x"}),
    "a run's end that fits": _record("run_ended", {"run_id": "LEFT", "state": "killed"}),
    "a lone surrogate": _record("artifact:dynamo_error", None, "caf\udce9 \ud800"),
    "60 levels deep": _record("x", json.loads("[" * 500 + "]" * 500)),
    "a registry that is none": envelope(x={"registry": [1]}),
    "a registry that is a device": envelope(x={"registry": "/dev/zero"}),
    "a name of a megabyte": envelope(n="n" * (1 << 20)),
}


def _fact(name: str, value: Any) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        body = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**body, name: value}))

    return spoil


def _file(name: bytes, content: bytes) -> Callable[[Path], None]:
    return lambda folder: Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(content)


def _pipe(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return spoil


def _pipe_among_traces(folder: Path) -> None:
    traces = folder / "trace"
    traces.mkdir()
    os.mkfifo(traces / "pipe.log")
    _fact("trace_folder", str(traces))(folder)


# Files and facts of a spool that are odd; its records are as they were.
ODD_FILES: dict[str, Callable[[Path], None]] = {
    "run.json: tags is a list": _fact("tags", ["a"]),
    "run.json: a tag is a number": _fact("tags", {"a": 1}),
    "run.json: name is a number": _fact("name", 5),
    "run.json: name has a lone surrogate": _fact("name", "caf\udce9"),
    "run.json: started_us is a text": _fact("started_us", "now"),
    "run.json: git is a list": _fact("git", []),
    "run.json: dirty is a text": _fact("git", {"dirty": "yes"}),
    "run.json: gpus hold a text": _fact("gpus", ["H100"]),
    "run.json: host holds an object": _fact("host", {"name": {}}),
    "run.json: exit_code beyond 63 bits": _fact("exit_code", 2**64),
    "run.json: state is a list": _fact("state", []),
    "run.json: a fact of next year": _fact("mood", "good"),
    "losses: a list": _file(b"0.losses", b"[1, 2]\n"),
    "losses: odd counts": _file(
        b"0.losses", b'{"a": "x", "b": 1e999, "c": -1, "d": 99999999999999999999}\n'
    ),
    "losses: nested": _file(b"0.losses", b"[" * DEEP),
    "said.events: no JSON": _file(b"said.events", b"half\n"),
    "said.events: a kind of next year": _file(b"said.events", b'{"v": 1, "kind": "mood"}\n'),
    "said.events: guards are numbers": _file(
        b"said.events", b'{"v": 1, "kind": "recompiled", "guards": [1]}\n'
    ),
    "said.events: a pipe": _pipe("said.events"),
    "a folder called like a file": lambda folder: (folder / "folder.jsonl").mkdir(),
    "a pipe called like a file": _pipe("pipe.jsonl"),
    "a pipe among torch's logs": _pipe_among_traces,
    "a link to nowhere": lambda folder: (folder / "link.jsonl").symlink_to("/no/such/file"),
    "a name that is not UTF-8": _file(b"caf\xe9.jsonl", b'{"s":0,"t":1,"n":"x"}\nbad\n'),
}
# Spools that cannot be recorded at all: each is set aside.
HOPELESS: dict[str, Callable[[Path], None]] = {
    "run.json: half": lambda folder: (folder / "run.json").write_text('{"run_id"') and None,
    "run.json: a list": lambda folder: (folder / "run.json").write_text("[]") and None,
    "run.json: nested": lambda folder: (folder / "run.json").write_text("[" * DEEP) and None,
    "run.json: a pipe": _pipe("run.json"),
    "run.json: no database": _fact("database", None),
    "run.json: run_id is a path": _fact("run_id", "../../x"),
    "run.json: gone": lambda folder: (folder / "run.json").unlink(),
    "run.json: the database is a folder": _fact("database", "/"),
    "run.json: the database is a device": _fact("database", "/dev/null"),
}


def insert_line(folder: Path, line: bytes) -> None:
    """Put a line into the middle of a spool's first file."""
    path = min(folder.glob("*.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[: len(lines) // 2], line + b"\n", *lines[len(lines) // 2 :]]))


def poisons() -> dict[str, Callable[[Path], None]]:
    """Return every way to spoil a spool, by what it is."""
    lines = {**BAD_LINES, **ODD_RECORDS}
    made: dict[str, Callable[[Path], None]] = {
        name: (lambda folder, line=line: insert_line(folder, line)) for name, line in lines.items()
    }
    return {**made, **ODD_FILES, **HOPELESS}
