"""A run's recorded compiles, graph breaks and recompiles, as far as causes need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from compileboard.collectors.fixes.fix import BreakFacts


@dataclass(frozen=True)
class SourceLines:
    """Lines of a user's file as they were when the run was recorded; `first_line` counts from 1."""

    file: Annotated[str, "Path in the repository, or module path."]
    first_line: Annotated[int, "Number of the first line."]
    lines: Annotated[tuple[str, ...], "The lines."]


@dataclass(frozen=True)
class RecordedCompile:
    """One compile with user names; `torch_function` is set if torch's wrapper was compiled.

    `restart_us` is the part of `total_us` spent on discarded tracing passes.
    """

    key: int
    process_id: str
    compile_id: str
    frame: tuple[int, int | None]  # generation and frame id: recompiles of one frame have the same
    function: str | None
    file: str | None
    line: int | None
    resumed_at: int | None
    outcome: str
    total_us: int
    restart_us: int
    is_recompile: bool
    torch_function: str | None = None
    source_line: str | None = None


@dataclass(frozen=True)
class RecordedGuard:
    id: int
    fingerprint: str
    category: str
    source: str | None
    expected: str | None
    actual: str | None
    reason: str
    line: int | None
    source_line: str | None


@dataclass(frozen=True)
class RecordedRecompile:
    compile_key: int
    guards: tuple[RecordedGuard, ...]
    dynamic_sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecordedBreak(BreakFacts):
    id: int = 0
    fingerprint: str = ""


@dataclass(frozen=True)
class BreakOccurrence:
    distinct_id: int
    compile_key: int | None
    outcome: str
    frame_line: int | None


@dataclass(frozen=True)
class RecordedRun:
    compiles: Sequence[RecordedCompile] = ()
    recompiles: Sequence[RecordedRecompile] = ()
    breaks: Sequence[RecordedBreak] = ()
    occurrences: Sequence[BreakOccurrence] = ()
    code: Sequence[SourceLines] = ()
    torch_version: tuple[int, int] = (2, 13)
