"""A fix: a program with a graph break or recompiles, the same program without, and what it applies to."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Fix:
    """A fix that was run: `before` makes the break or the recompiles, `after` none, with an equal result.

    Both are whole programs: they import torch, compile with `torch.compile(…)` and leave a `result`.
    `keys` are guard categories or registry ids of graph breaks (GB0036). A fix without `after` says that nothing helps.
    `title` and `edit` name what is recorded as {source}, {sources}, {dim}, {name}, {expression}.
    """

    id: str
    kind: Literal["recompile", "graph_break"]
    keys: tuple[str, ...]
    title: str
    applies: str
    cost: str
    before: str
    after: str | None
    settings: tuple[str, ...] = ()  # statements to run after `import torch`, where that alone is the fix
    minimum_torch: tuple[int, int] = (2, 4)
    is_needless: bool = False  # what is recorded is as it should be: nothing to fix

    @property
    def diff(self) -> list[str]:
        """Return the lines of `before` and `after` as a unified diff without its header."""
        lines = difflib.unified_diff(self.before.splitlines(), (self.after or "").splitlines(), lineterm="", n=3)
        return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def edit_program(program: str, *changes: tuple[str, str]) -> str:
    """Replace each text, which occurs once, by another.

    Raises: ValueError if one is missing or there twice.
    """
    for old, new in changes:
        if program.count(old) != 1:
            raise ValueError(f"{old!r} is {program.count(old)} times in the program, once is expected")
        program = program.replace(old, new)
    return program


@dataclass(frozen=True)
class LineEdit:
    """Lines of a user's file to replace; `replacement` empty removes them. Lines count from 1."""

    file: str
    line: int
    line_count: int
    replacement: tuple[str, ...]


@dataclass(frozen=True)
class SuggestedFix:
    """A fix for one recorded cause, in the names of the user's program.

    `edits` and `settings` are what `try --fix` applies; both empty where it takes a person to change the program.
    """

    fix: Fix
    title: str
    edits: tuple[LineEdit, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def helps(self) -> bool:
        """Return True if it removes what is recorded, and that is worth while."""
        return self.fix.after is not None and not self.fix.is_needless


@dataclass(frozen=True)
class RecompileFacts:
    """What is recorded of the recompiles of one cause; siblings are the other inputs that changed with it."""

    category: str
    source: str | None = None
    siblings: tuple[str, ...] = ()
    dim: int | None = None
    values: tuple[str, ...] = ()  # expected and actual values, in the order they came
    symbol: str | None = None
    reason: str = ""
    function: str | None = None
    file: str | None = None
    line: int | None = None
    source_line: str | None = None
    recompile_count: int = 0
    after_break: bool = False  # the function is code after a graph break, or the value was left by one
    lines: tuple[str, ...] = ()  # the function's source, where it is kept
    dynamic_sources: tuple[str, ...] = ()  # what torch made dynamic at the recompile: "L['x']:0", "L['n']"
    torch_version: tuple[int, int] = (2, 13)
    is_eager: bool = False  # a function reached the recompile limit with it


@dataclass(frozen=True)
class BreakFacts:
    """What is recorded of one distinct graph break; `lines` is the source around it, from line `first_line` on."""

    gb_id: str | None = None
    gb_type: str | None = None
    reason: str = ""
    context: str = ""
    explanation: str = ""
    hints: tuple[str, ...] = ()
    function: str | None = None
    file: str | None = None
    line: int | None = None
    source_line: str | None = None
    first_line: int | None = None
    lines: tuple[str, ...] = field(default=())
    skipped_count: int = 0  # functions left to run eagerly for it
    torch_version: tuple[int, int] = (2, 13)
