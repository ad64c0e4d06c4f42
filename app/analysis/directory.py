"""A run's compiles as a directory: how each ended, its attempts, and what its log says in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from compileboard.app.analysis.words import OUTCOMES, Word, describe_outcome
from compileboard.app.queries.compiles import CompileRow
from compileboard.app.queries.directory import Step

ENDINGS = {
    "ok": Word("ok", "good", "Compiled at the first attempt, without a graph break."),
    "restarted": Word("restarted", "busy", "Compiled; the analysis was begun again at least once on the way."),
    "broke": Word(
        "broke and resumed", "warn", "A graph break ended the graph; the function goes on after it, compiled by itself."
    ),
    "empty": Word("empty graph", "quiet", "The frame had no tensor operation to compile."),
    "skipped": OUTCOMES["skipped"],
    "failed": OUTCOMES["failed"],
    "recompile_limit": OUTCOMES["recompile_limit"],
    "started": Word("not finished", "busy", "dynamo began to trace the frame; no record of its end came."),
    "announced": OUTCOMES["announced"],
}
LEGEND = tuple(ENDINGS[key] for key in ("ok", "restarted", "broke", "empty", "skipped", "failed", "recompile_limit"))


@dataclass(frozen=True)
class Line:
    """Hold steps of one kind and name that follow each other."""

    steps: tuple[Step, ...]

    @property
    def first(self) -> Step:
        """Return the first of them."""
        return self.steps[0]


@dataclass(frozen=True)
class Attempt:
    """Hold one analysis of a frame."""

    number: int
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Entry:
    """Hold one compile of the directory; `artifact_count` is without descriptions of tensors."""

    compile: CompileRow
    ending: Word
    attempts: tuple[Attempt, ...]
    artifact_count: int


def name_ending(it: CompileRow) -> str:
    """Say how a compile ended, one of ENDINGS; the filter of the list says the same in SQL."""
    if it.outcome in ("compiled", "empty") and it.graph_break_count:
        return "broke"
    if it.outcome == "compiled":
        return "restarted" if it.attempt_count > 1 else "ok"
    return it.outcome


def describe_ending(it: CompileRow, running: bool) -> Word:
    """Say in words how a compile ended."""
    if it.outcome == "started":
        return describe_outcome(it.outcome, running)
    return ENDINGS.get(name_ending(it)) or describe_outcome(it.outcome, running)


def build_entries(compiles: Sequence[CompileRow], steps: Sequence[Step], running: bool = False) -> list[Entry]:
    """Put what happened in each compile beside it, by attempt."""
    by_compile: dict[int, list[Step]] = {}
    for step in steps:
        by_compile.setdefault(step.compile_key, []).append(step)
    entries = []
    for it in compiles:
        own = by_compile.get(it.id, [])
        count = sum(step.kind == "artifact" for step in own)
        entries.append(Entry(it, describe_ending(it, running), split_attempts(own), count))
    return entries


def split_attempts(steps: Sequence[Step]) -> tuple[Attempt, ...]:
    """Split a compile's steps by attempt: an event belongs to the attempt of the artifacts before it.

    A look-up in a cache is left out where the artifact that it was read from stands beside it.
    """
    artifacts = {(step.process_id, step.sequence) for step in steps if step.kind == "artifact"}
    last = max((step.attempt or 0 for step in steps), default=0)
    found: dict[int, list[Step]] = {}
    now = 0
    for step in steps:
        if step.kind == "lookup" and (step.process_id, step.sequence) in artifacts:
            continue
        # torch writes records of a compile after its last attempt, and knows no attempt of one that had no artifact.
        now = last if step.kind == "record" else now if step.attempt is None else step.attempt
        found.setdefault(now, []).append(step)
    return tuple(Attempt(number, _join(own)) for number, own in sorted(found.items()))


def _join(steps: Sequence[Step]) -> tuple[Line, ...]:
    """Join artifacts of one name that follow each other into one line."""
    lines = []
    for (kind, _name), group in groupby(steps, key=lambda step: (step.kind, step.name)):
        same = tuple(group)
        lines += [Line(same)] if kind == "artifact" else [Line((step,)) for step in same]
    return tuple(lines)
