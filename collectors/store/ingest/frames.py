"""Find the compile of an event.

torch identifies compiles by frame id and compile id ("0/1"), which restart at 0/0 after
torch._dynamo.reset(). `generation` counts restarts, so that (process, generation, compile id) is
unique.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compileboard.collectors.contract.events import FrameContext
from compileboard.collectors.store.connection import read_value
from compileboard.collectors.store.ingest.insert import Insert, select_fields

_COMPILE = Insert("compiles")
_ANNOUNCED: Mapping[str, Any] = {
    "outcome": "announced",
    "resumed_at": None,
    "stack_id": None,
    "attempt_count": 1,
}


@dataclass
class Compile:
    key: int
    compile_id: str
    frame_id: int | None
    function_id: int | None
    line: int | None
    recompiled: bool = False
    has_unnamed_recompiles: bool = False  # or may have: their function was not known when they came
    has_breaks: bool = False
    is_failure_counted: bool = False  # by its exception, before its record came


@dataclass
class ResetDetector:
    number: int = 0
    traced: set[str] = field(
        default_factory=set
    )  # by dynamo_start, or by a forward record whose start was not seen

    def trace(self, compile_id: str, attempt: int | None) -> bool:
        is_reset = compile_id in self.traced and not attempt
        if is_reset:
            self.number += 1
            self.traced.clear()
        self.traced.add(compile_id)
        return is_reset


@dataclass
class Process:
    generation: ResetDetector = field(default_factory=ResetDetector)
    compiles: dict[str, Compile] = field(default_factory=dict)
    frames: dict[int, list[Compile]] = field(default_factory=dict)  # the same by frame id
    configs: set[tuple[str, str]] = field(
        default_factory=set
    )  # kind and hash of those that are stored

    def remember(self, compile_: Compile) -> None:
        self.compiles[compile_.compile_id] = compile_
        if compile_.frame_id is not None:
            self.frames.setdefault(compile_.frame_id, []).append(compile_)


class FrameIndex:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._processes: dict[str, Process] = {}

    def forget(self) -> None:
        self._processes.clear()

    def process(self, process_id: str) -> Process:
        known = self._processes.get(process_id)
        if known is None:
            known = self._processes[process_id] = self._load(process_id)
        return known

    def _load(self, process_id: str) -> Process:
        rows = self.connection.execute(
            """
            select id, generation, compile_id, frame_id, function_id, line, outcome,
            recompiled_from, graph_break_count,
            outcome = 'failed' and not exists (
              select 1
              from compilations as k
              where k.compile_key = compiles.id
                and k.kind = 'forward'
            ) as is_failure_counted
            from compiles
            where process_id = :process_id
              and generation = (select max(generation) from compiles where process_id = :process_id)
            order by id
            """,
            {"process_id": process_id},
        ).fetchall()
        process = Process()
        for row in rows:
            process.generation.number = row["generation"]
            if row["outcome"] != "announced":
                process.generation.traced.add(row["compile_id"])
            process.remember(
                Compile(
                    key=row["id"],
                    compile_id=row["compile_id"],
                    frame_id=row["frame_id"],
                    function_id=row["function_id"],
                    line=row["line"],
                    recompiled=row["recompiled_from"] is not None,
                    has_unnamed_recompiles=row["recompiled_from"] is not None,
                    has_breaks=row["graph_break_count"] > 0,
                    is_failure_counted=bool(row["is_failure_counted"]),
                )
            )
        return process

    def begin(
        self, run_id: str, event: FrameContext, started: Mapping[str, Any]
    ) -> tuple[Compile, bool]:
        process = self.process(event.process_id)
        if process.generation.trace(event.compile_id or "", event.attempt):
            process.compiles.clear()
            process.frames.clear()
        known = process.compiles.get(event.compile_id or "")
        return (known, False) if known else self._make(run_id, event, process, started)

    def mark_traced(self, event: FrameContext) -> bool:
        traced = self.process(event.process_id).generation.traced
        if event.compile_id is None or event.compile_id in traced:
            return False
        traced.add(event.compile_id)
        return True

    def find(self, run_id: str, event: FrameContext) -> tuple[Compile | None, bool]:
        if event.compile_id is None:
            return None, False
        process = self.process(event.process_id)
        known = process.compiles.get(event.compile_id)
        return (known, False) if known else self._make(run_id, event, process)

    def list_frame(self, process_id: str, compile_: Compile) -> list[Compile]:
        """Return the compiles of the same frame."""
        frames = self.process(process_id).frames
        return frames.get(-1 if compile_.frame_id is None else compile_.frame_id, [compile_])

    def key_of(self, event: FrameContext) -> int | None:
        known = (
            self.process(event.process_id).compiles.get(event.compile_id)
            if event.compile_id
            else None
        )
        return known.key if known else None

    def _make(
        self,
        run_id: str,
        event: FrameContext,
        process: Process,
        started: Mapping[str, Any] = _ANNOUNCED,
    ) -> tuple[Compile, bool]:
        sibling = self._sibling(process, event.frame_id)
        row = {
            **select_fields(event, "process_id", "frame_id", "frame_compile_id", "rank"),
            "run_id": run_id,
            "generation": process.generation.number,
            "compile_id": event.compile_id or "",
            "function_id": sibling.function_id if sibling else None,
            "line": sibling.line if sibling else None,
            "started_us": event.time_us,
            **started,
        }
        compile_ = Compile(
            key=_COMPILE.add_for_id(self.connection, row),
            **{name: row[name] for name in ("compile_id", "frame_id", "function_id", "line")},
        )
        process.remember(compile_)
        return compile_, True

    @staticmethod
    def _sibling(process: Process, frame_id: int | None) -> Compile | None:
        """Find an earlier compile of the frame, because torch's recompile-limit records have no
        function name.
        """
        same_frame = process.frames.get(frame_id, ()) if frame_id is not None else ()
        return next((compile_ for compile_ in same_frame if compile_.function_id is not None), None)


class LoggedFrames(FrameIndex):
    """Finds the hooks' compiles for the events of a log, whose generations are known."""

    def __init__(
        self, connection: sqlite3.Connection, generation_of: Callable[[FrameContext], int | None]
    ) -> None:
        super().__init__(connection)
        self._generation_of = generation_of
        self._keys: dict[tuple[str, int, str], int] = {}

    def forget(self) -> None:
        super().forget()
        self._keys.clear()

    def key_of(self, event: FrameContext) -> int | None:
        generation = self._generation_of(event)
        if event.compile_id is None or generation is None:
            return super().key_of(event)
        position = (event.process_id, generation, event.compile_id)
        if position not in self._keys:
            key = read_value(
                self.connection,
                """
                select id
                from compiles
                where process_id = ? and generation = ? and compile_id = ?
                """,
                position,
            )
            if key is None:
                return None
            self._keys[position] = key
        return self._keys[position]


_DEEPEST = 500  # a program that recurses without end has no more to tell below


_STACK_NODE = Insert("stack_nodes")
_FIND_NODE = """
select id
from stack_nodes
where run_id = :run_id
  and coalesce(parent_id, 0) = coalesce(:parent_id, 0)
  and file = :file
  and coalesce(line, -1) = coalesce(:line, -1)
  and name = :name
"""


class StackIndex:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._known: dict[tuple[Any, ...], int] = {}

    def forget(self) -> None:
        self._known.clear()

    def find(self, run_id: str, stack: Sequence[Mapping[str, Any]]) -> int | None:
        node: int | None = None
        is_new = False
        for depth, frame in enumerate(stack[-_DEEPEST:]):
            file, line, name = _text(frame.get("file")), frame.get("line"), _text(frame.get("name"))
            line = line if isinstance(line, int) else None
            key = (run_id, node, file, line, name)
            node_id = self._known.get(key)
            if node_id is None:
                code = frame.get("code")
                values = {
                    "run_id": run_id,
                    "parent_id": node,
                    "depth": depth,
                    "file": file,
                    "line": line,
                    "name": name,
                    "code": code if isinstance(code, str) else None,
                }
                if not is_new:  # a node that is new has none below it
                    node_id = read_value(self.connection, _FIND_NODE, values)
                    is_new = node_id is None
                if node_id is None:
                    node_id = _STACK_NODE.add_for_id(self.connection, values)
                self._known[key] = node_id
            node = node_id
        return node


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else "<unknown>"
