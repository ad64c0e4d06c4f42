"""The catalogue of fixes, a file each in the folder `catalogue`, and what is suggested to a user of them."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

Kind = Literal["recompile", "graph_break"]

CATALOGUE = Path(__file__).parent / "catalogue"
OLDEST_TORCH = (2, 4)
_FACTS = {"for", "applies", "cost", "torch", "needless"}
_PROGRAM = re.compile(r"^## (Before|After|Settings)\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Fix:
    """A fix of the catalogue, as `catalogue/README.md` describes its file.

    `keys` are guard categories or torch's ids of graph breaks (GB0036).
    `title` names what is recorded as {source}, {sources}, {dim}, {name}, {expression}.
    """

    id: str
    kind: Kind
    keys: tuple[str, ...]
    title: str
    applies: str
    cost: str
    before: str
    after: str | None  # None where nothing helps
    settings: tuple[str, ...] = ()  # statements to run after `import torch`, where that alone is the fix
    minimum_torch: tuple[int, ...] = OLDEST_TORCH
    is_needless: bool = False  # what is recorded is as it should be: nothing to fix

    @property
    def diff(self) -> list[str]:
        """Return the lines of `before` and `after` as a unified diff without its header."""
        lines = difflib.unified_diff(self.before.splitlines(), (self.after or "").splitlines(), lineterm="", n=3)
        return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


@cache
def find_fix(kind: Kind, fix_id: str) -> Fix:
    """Read one fix of the catalogue."""
    return parse_fix(kind, fix_id, (CATALOGUE / kind / f"{fix_id}.md").read_text(encoding="utf-8"))


@cache
def list_fixes(kind: Kind) -> tuple[Fix, ...]:
    """Read all fixes of a kind, by id."""
    return tuple(find_fix(kind, path.stem) for path in sorted((CATALOGUE / kind).glob("*.md")))


@cache
def list_fixes_for(kind: Kind, key: str) -> tuple[Fix, ...]:
    """List the fixes for a guard category, or for torch's id of a graph break."""
    return tuple(fix for fix in list_fixes(kind) if key in fix.keys)


def parse_fix(kind: Kind, fix_id: str, text: str) -> Fix:
    """Read the text of a fix's file.

    Raises ValueError if a fact or the program before is missing, or is none of those that a fix has.
    """
    head, *_ = text.partition("\n## ")
    title, *lines = head.strip().splitlines()
    facts = dict(line.removeprefix("- ").partition(": ")[::2] for line in lines if line)
    programs = dict(_PROGRAM.findall(text))
    if not {"for", "applies", "cost"} <= facts.keys() <= _FACTS or "Before" not in programs:
        raise ValueError(f"catalogue/{kind}/{fix_id}.md has {[*facts, *programs]}; see catalogue/README.md")
    return Fix(
        id=fix_id,
        kind=kind,
        keys=tuple(facts["for"].split(", ")),
        title=title.removeprefix("# "),
        applies=facts["applies"],
        cost=facts["cost"],
        before=programs["Before"],
        after=programs.get("After"),
        settings=tuple(programs.get("Settings", "").splitlines()),
        minimum_torch=tuple(map(int, facts["torch"].split("."))) if "torch" in facts else OLDEST_TORCH,
        is_needless="needless" in facts,
    )


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
