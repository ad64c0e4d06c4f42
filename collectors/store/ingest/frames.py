"""Find the compile that an event belongs to.

torch names a compile by frame id and compile id ("0/1"), which start again at 0/0 after torch._dynamo.reset(). A
`generation` counts those restarts, so that (process, generation, compile id) is one compile for good.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from compileboard.collectors.contract.events import FrameContext
from compileboard.collectors.store.ingest.insert import InsertForId, pick

_COMPILE = InsertForId("compiles")
_ANNOUNCED: Mapping[str, Any] = {"outcome": "announced", "resumed_at": None, "stack_id": None, "attempt_count": 1}


@dataclass
class Compile:
    """Remember the part of a compile's row that later events need."""

    key: int
    compile_id: str
    frame_id: int | None
    function_id: int | None
    line: int | None
    recompiled: bool = False
    has_unnamed_recompiles: bool = False  # or may have: their function was not known when they came
    has_breaks: bool = False


@dataclass
class Generation:
    """The compiles that a process traced since its last reset(), and how many resets were before."""

    number: int = 0
    traced: set[str] = field(default_factory=set)  # by dynamo_start, or by a forward record whose start was not seen

    def trace(self, compile_id: str, attempt: int | None) -> bool:
        """Count the start of a trace; return True if a reset() came before: the same id again, at its first attempt."""
        is_reset = compile_id in self.traced and not attempt
        if is_reset:
            self.number += 1
            self.traced.clear()
        self.traced.add(compile_id)
        return is_reset


@dataclass
class Process:
    """Remember where a process is in its own history."""

    generation: Generation = field(default_factory=Generation)
    compiles: dict[str, Compile] = field(default_factory=dict)
    frames: dict[int, list[Compile]] = field(default_factory=dict)  # the same by frame id
    configs: set[tuple[str, str]] = field(default_factory=set)  # kind and hash of those that are stored

    def remember(self, compile_: Compile) -> None:
        """Add a compile."""
        self.compiles[compile_.compile_id] = compile_
        if compile_.frame_id is not None:
            self.frames.setdefault(compile_.frame_id, []).append(compile_)


class FrameIndex:
    """Compiles by process and id, made where they are new; remembers the current generation of each process."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._processes: dict[str, Process] = {}

    def forget(self) -> None:
        """Drop what is remembered; it is read again from the database."""
        self._processes.clear()

    def process(self, process_id: str) -> Process:
        """Return a process's state, read from the database the first time."""
        known = self._processes.get(process_id)
        if known is None:
            known = self._processes[process_id] = self._load(process_id)
        return known

    def _load(self, process_id: str) -> Process:
        rows = self.connection.execute(
            """
            select id, generation, compile_id, frame_id, function_id, line, outcome, recompiled_from, graph_break_count
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
                )
            )
        return process

    def begin(self, run_id: str, event: FrameContext, started: Mapping[str, Any]) -> tuple[Compile, bool]:
        """Return the compile that dynamo now starts to trace, and whether it is new: `started` is then of its row."""
        process = self.process(event.process_id)
        if process.generation.trace(event.compile_id or "", event.attempt):
            process.compiles.clear()
            process.frames.clear()
        known = process.compiles.get(event.compile_id or "")
        return (known, False) if known else self._make(run_id, event, process, started)

    def take_untraced(self, event: FrameContext) -> bool:
        """Let a record stand for the trace of its compile, whose start was not seen; False if it was."""
        traced = self.process(event.process_id).generation.traced
        if event.compile_id is None or event.compile_id in traced:
            return False
        traced.add(event.compile_id)
        return True

    def find(self, run_id: str, event: FrameContext) -> tuple[Compile | None, bool]:
        """Return the compile an event belongs to, and whether it had to be made for it."""
        if event.compile_id is None:
            return None, False
        process = self.process(event.process_id)
        known = process.compiles.get(event.compile_id)
        return (known, False) if known else self._make(run_id, event, process)

    def key_of(self, event: FrameContext) -> int | None:
        """Return the row of the compile an event belongs to, if it is known; nothing is made for it."""
        known = self.process(event.process_id).compiles.get(event.compile_id) if event.compile_id else None
        return known.key if known else None

    def _make(
        self, run_id: str, event: FrameContext, process: Process, started: Mapping[str, Any] = _ANNOUNCED
    ) -> tuple[Compile, bool]:
        sibling = self._sibling(process, event.frame_id)
        row = {
            **pick(event, "process_id", "frame_id", "frame_compile_id", "rank"),
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
        """Find an earlier compile of the same frame: torch names no function on a recompile-limit record."""
        same_frame = process.frames.get(frame_id, ()) if frame_id is not None else ()
        return next((compile_ for compile_ in same_frame if compile_.function_id is not None), None)


class LoggedFrames(FrameIndex):
    """The compiles that the hooks recorded, also for events of a process's log, of which the generation is known."""

    def __init__(self, connection: sqlite3.Connection, generation_of: Callable[[FrameContext], int | None]) -> None:
        super().__init__(connection)
        self._generation_of = generation_of
        self._keys: dict[tuple[str, int, str], int] = {}

    def forget(self) -> None:
        """Drop what is remembered; it is read again from the database."""
        super().forget()
        self._keys.clear()

    def key_of(self, event: FrameContext) -> int | None:
        """Return the row of the compile that an event belongs to."""
        generation = self._generation_of(event)
        if event.compile_id is None or generation is None:
            return super().key_of(event)
        position = (event.process_id, generation, event.compile_id)
        if position not in self._keys:
            row = self.connection.execute(
                """
                select id
                from compiles
                where process_id = :process_id and generation = :generation and compile_id = :compile_id
                """,
                {"process_id": event.process_id, "generation": generation, "compile_id": event.compile_id},
            ).fetchone()
            if row is None:
                return None
            self._keys[position] = int(row["id"])
        return self._keys[position]
