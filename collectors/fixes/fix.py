"""The catalogue of fixes, one file each in `catalogue`, suggestions made from it, and the recorded
facts that they need.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from compileboard.collectors.contract.compile_labels import label_line
from compileboard.collectors.contract.verdicts import LABELS
from compileboard.collectors.fixes.step_costs import RunSteps

Kind = Literal["recompile", "graph_break", "cudagraph"]

CATALOGUE = Path(__file__).parent / "catalogue"
OLDEST_TORCH = (2, 4)
_FACTS = {"for", "applies", "cost", "changes", "left", "torch", "gone", "needless", "unsure"}
Left = Literal["first", "dynamic", "each", "passed"]
_LEFT: dict[str, Left] = {
    "the first": "first",
    "one for any size": "dynamic",
    "as many": "each",
    "those of what is passed in": "passed",
}
_PROGRAM = re.compile(
    r"^## (Before|After|Settings)\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Fix:
    """A fix from the catalogue; `catalogue/README.md` describes the format of its file.

    `keys` are guard categories or torch's IDs of graph breaks (GB0036). `title` has the
    placeholders {source}, {sources}, {dim}, {name}, {expression}.
    """

    id: str
    kind: Kind
    keys: tuple[str, ...]
    title: str
    applies: str
    cost: str
    before: str
    after: str | None  # None where nothing helps
    changes: str | None = None  # what else becomes different: exceptions, memory, order, values
    settings: tuple[
        str, ...
    ] = ()  # statements to run after `import torch`, where that alone is the fix
    minimum_torch: tuple[int, ...] = OLDEST_TORCH
    # Torch that no longer breaks: to run it is the fix, and the program before needs no other.
    gone_in: tuple[int, ...] | None = None
    is_needless: bool = False  # what is recorded is as it should be: nothing to fix
    is_unsure: bool = False  # it is worth trying, and promises nothing
    left: Left = "first"  # which compiles of a function remain

    def warn(self, title: str) -> str:
        """Append the fix's side effects to a title."""
        return f"{title}. Changes {self.changes}" if self.changes else title

    @property
    def diff(self) -> list[str]:
        lines = difflib.unified_diff(
            self.before.splitlines(), (self.after or "").splitlines(), lineterm="", n=3
        )
        return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


@cache
def find_fix(kind: Kind, fix_id: str) -> Fix:
    return parse_fix(kind, fix_id, (CATALOGUE / kind / f"{fix_id}.md").read_text(encoding="utf-8"))


@cache
def list_fixes(kind: Kind) -> tuple[Fix, ...]:
    return tuple(find_fix(kind, path.stem) for path in sorted((CATALOGUE / kind).glob("*.md")))


@cache
def list_fixes_for(kind: Kind, key: str) -> tuple[Fix, ...]:
    return tuple(fix for fix in list_fixes(kind) if key in fix.keys)


def parse_fix(kind: Kind, fix_id: str, text: str) -> Fix:
    head, *_ = text.partition("\n## ")
    title, *lines = head.strip().splitlines()
    facts = dict(line.removeprefix("- ").partition(": ")[::2] for line in lines if line)
    programs = dict(_PROGRAM.findall(text))
    if not {"for", "applies", "cost"} <= facts.keys() <= _FACTS or "Before" not in programs:
        raise ValueError(
            f"catalogue/{kind}/{fix_id}.md has {[*facts, *programs]}; see catalogue/README.md"
        )
    return Fix(
        id=fix_id,
        kind=kind,
        keys=tuple(facts["for"].split(", ")),
        title=title.removeprefix("# "),
        applies=facts["applies"],
        cost=facts["cost"],
        before=programs["Before"],
        after=programs.get("After"),
        changes=facts.get("changes"),
        settings=tuple(programs.get("Settings", "").splitlines()),
        minimum_torch=tuple(map(int, facts["torch"].split(".")))
        if "torch" in facts
        else OLDEST_TORCH,
        gone_in=tuple(map(int, facts["gone"].split("."))) if "gone" in facts else None,
        is_needless="needless" in facts,
        is_unsure="unsure" in facts,
        left=_LEFT[facts.get("left", "the first")],
    )


@dataclass(frozen=True)
class LineEdit:
    file: str
    line: int
    line_count: int
    replacement: tuple[str, ...]


@dataclass(frozen=True)
class SuggestedFix:
    """A fix for one recorded cause, with the names of the user's program.

    `try --fix` applies `edits` and `settings`; both are empty if a person must change the program.
    """

    fix: Fix
    title: str
    edits: tuple[LineEdit, ...] = ()
    settings: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()  # titles of the fixes that this one combines
    frees: frozenset[str] = frozenset()  # what the compiled function no longer reads with it

    @property
    def can_try(self) -> bool:
        return bool(self.edits or self.settings)

    @property
    def helps(self) -> bool:
        is_known = self.fix.after is not None or self.fix.gone_in is not None
        return is_known and not self.fix.is_needless and not self.fix.is_unsure


@dataclass(frozen=True)
class TriedStep:
    """Time of a step without a fix and with it, from its start to the start of the next one."""

    function: Annotated[str, "The compiled function whose calls begin the steps."]
    base_us: Annotated[float, "Without the fix, median of the executions. Microseconds."]
    new_us: Annotated[float, "With it. Microseconds."]
    lowest_us: Annotated[
        float | None,
        "The least that it saved, of any two executions; null of fewer than three a side. "
        "Microseconds.",
    ]
    highest_us: Annotated[float | None, "The most that it saved. Microseconds."]
    basis: Annotated[str, "How many executions it rests on, and their spread."]
    label: Annotated[str, "Whether it is more than noise."]

    @property
    def saved_us(self) -> float:
        return self.base_us - self.new_us

    @property
    def is_judged(self) -> bool:
        return self.label in (LABELS["better"], LABELS["worse"])

    @property
    def is_noise(self) -> bool:
        return not self.is_judged and self.label != LABELS["single"]

    @property
    def judgement(self) -> str:
        is_single = self.label == LABELS["single"]
        return self.basis if is_single else f"{self.label} ({self.basis})"


@dataclass(frozen=True)
class TriedFix:
    """The result of trying a fix on this run's program, or on a program with the same cause."""

    tables = ("trials",)

    outcome: str
    label: Annotated[str, "The outcome in words."]
    summary: str
    title: str
    new_run_id: str | None
    base_run_id: str | None
    fix_id: Annotated[str | None, "Its name in the catalogue; null of a patch or several fixes."]
    cause_fingerprint: Annotated[str | None, "Its cause; null of a patch or several fixes."]
    ended_us: Annotated[int, "When it was measured. Microseconds since 1970, UTC."]
    settings: Annotated[tuple[str, ...], "Statements that it ran after `import torch`."] = ()
    base_us: Annotated[
        int | None, "Compile time without it; null where not measured. Microseconds."
    ] = None
    new_us: Annotated[int | None, "Compile time with it. Microseconds."] = None
    is_single: Annotated[
        bool, "Whether a side was executed only once, so that its compile time is not judged."
    ] = False
    causes: Annotated[
        tuple[str, ...], "Fingerprints of the causes whose fixes were tried together."
    ] = ()
    step: Annotated[
        TriedStep | None,
        "A step of the function whose compiles it changed; null where none was measured, or of "
        "another program, source or GPU than the run's.",
    ] = None
    has_fewer_breaks: Annotated[bool, "Whether graph breaks became fewer."] = False
    compile_label: Annotated[
        str | None, "Whether its compile time differs by more than noise; null where not measured."
    ] = None
    fewer: Annotated[str, 'What became fewer: "3 recompiles fewer"; empty if nothing.'] = ""
    slower: Annotated[
        tuple[str, ...], 'Times that grew by more than noise: "compile time 12% more".'
    ] = ()

    @property
    def is_verified(self) -> bool:
        return self.outcome == "improved"

    @property
    def verdict(self) -> str:
        if not self.is_verified:
            return self.label
        return "Verified, takes longer" if self.slower else "Verified"

    @property
    def saved_share(self) -> float | None:
        """Return the saved share of the compile time, negative if it grew."""
        if not self.base_us or self.new_us is None:
            return None
        return 1 - self.new_us / self.base_us

    @property
    def is_noise(self) -> bool:
        return self.compile_label == LABELS["noise"]

    @property
    def key(self) -> tuple[str | None, str | None, int]:
        return self.cause_fingerprint, self.fix_id, self.ended_us

    def is_trial_of(self, fingerprints: Collection[str], suggested: SuggestedFix) -> bool:
        """Return whether this trial tried the suggested fix for one of the causes."""
        is_same = self.cause_fingerprint in fingerprints and self.fix_id == suggested.fix.id
        return is_same and (bool(suggested.edits) or self.settings == suggested.settings)


@dataclass(frozen=True)
class RecompileFacts:
    category: str
    source: str | None = None
    siblings: tuple[str, ...] = ()
    dim: int | None = None
    values: tuple[str, ...] = ()  # expected and actual values, in the order they came
    is_one_series: bool = True  # one of the sources had all values
    symbol: str | None = None
    reason: str = ""
    function: str | None = None
    file: str | None = None
    line: int | None = None
    source_line: str | None = None
    recompile_count: int = 0
    # The function is code after a graph break, or the value was left by one.
    after_break: bool = False
    lines: tuple[str, ...] = ()  # the function's source, where it is kept
    dynamic_sources: tuple[
        str, ...
    ] = ()  # what torch made dynamic at the recompile: "L['x']:0", "L['n']"
    torch_version: tuple[int, int] = (2, 13)
    is_eager: bool = False  # a function reached the recompile limit with it
    is_static: bool = False  # compiled with `dynamic=False`, which no setting of sizes changes
    together: tuple[str, ...] = ()  # the categories of all that changes with it
    beside: frozenset[str] = frozenset()  # the categories of all that differs at some recompile
    sizes: tuple[tuple[str, int], ...] = ()  # each source and dimension that differed
    # One of the sizes differed again after torch had made it dynamic: the code needs its value.
    is_compiled_in: bool = False
    is_without_gradients: bool = False  # in some of the calls that were compiled
    called_at: str | None = None  # by the user's code, where the function is a library's
    call_code: str | None = None  # that line
    is_in_hook: bool = False  # a module's forward hook, or what that calls


@dataclass(frozen=True)
class StackFrame:
    file: str
    name: str
    line: int | None
    code: str | None = None

    @property
    def place(self) -> str:
        return label_line(self.file, self.line)


Block = Literal["for", "while", "with", "try", "comprehension"]


@dataclass(frozen=True)
class EagerFunction:
    """A function that runs eagerly because its graph broke where torch cannot resume."""

    function: Annotated[str | None, "Qualified name of the function."]
    file: Annotated[str | None, "Its file: path in the repository, or module path."]
    line: Annotated[int | None, "Its first line, or the line that it begins or goes on at."]
    is_rest: Annotated[bool, "Whether what stands before that line is compiled."] = False
    block: Annotated[
        Block | None, "Its statement around the graph break, if that is why; null if not known."
    ] = None
    block_line: Annotated[int | None, "Line of that statement."] = None
    called_at: Annotated[
        str | None, "Of a library's function: the line of the user's code that called it."
    ] = None


@dataclass(frozen=True)
class Caller:
    """An inlined or compiled function, and the line of its call to the next function."""

    function: str
    line: int
    first_line: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class BreakFacts:
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
    call: StackFrame | None = None  # in the user's code, where the line is a library's
    eager: tuple[EagerFunction, ...] = ()
    is_inlined: bool = False  # into a compiled function that called its own
    compiled: str | None = None  # that function, the outermost; None if there are several
    # Each way from a compiled function to the inlined one that broke, the compiled one first.
    callers: tuple[tuple[Caller, ...], ...] = ()
    skipped: tuple[Caller, ...] = ()  # such a way from a function that torch skipped
    torch_version: tuple[int, int] = (2, 13)


@dataclass(frozen=True)
class SourceLines:
    """Lines of a user's file as they were when the run was recorded; `first_line` counts from 1."""

    file: Annotated[str, "Path in the repository, or module path."]
    first_line: Annotated[int, "Number of the first line."]
    lines: Annotated[tuple[str, ...], "Text of the lines, without line ends."]


@dataclass(frozen=True)
class RecordedCompile:
    """One compile with user names; `torch_function` is set if torch's wrapper was compiled.

    `restart_us` is the part of `total_us` spent on discarded tracing passes, `phases_us` the rest.
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
    called_at: str | None = None  # by the user's code, where the file is a library's
    call_code: str | None = None  # that line
    started_us: int = 0
    phases_us: tuple[int, ...] = ()
    op_count: int = 0
    is_dynamic: bool = False
    is_in_hook: bool = False


@dataclass(frozen=True)
class RecordedGuard:
    fingerprint: str
    category: str
    source: str | None
    expected: str | None
    actual: str | None
    reason: str
    line: int | None
    source_line: str | None
    cache_entry: str | None = None
    inlined_file: str | None = None  # of a function from another file, and its line
    inlined_line: int | None = None


@dataclass(frozen=True)
class RecordedRecompile:
    """A recompile with torch's reason for each cache entry, and every failed guard if recorded. For
    entries in `unread`, not every guard could be evaluated.
    """

    compile_key: int
    guards: tuple[RecordedGuard, ...]
    failed: tuple[RecordedGuard, ...] = ()
    unread: tuple[str, ...] = ()
    dynamic_sources: tuple[str, ...] = ()
    is_static: bool = False  # it was compiled with `dynamic=False`
    has_gradients: bool | None = None
    cause_id: int | None = None  # over all runs
    fingerprint: str | None = None  # of that cause

    @property
    def is_whole(self) -> bool:
        return bool(self.failed) and not self.unread


@dataclass(frozen=True)
class RecordedBreak(BreakFacts):
    id: int = 0
    fingerprint: str = ""


@dataclass(frozen=True)
class BreakOccurrence:
    """A graph break in a compile. `frame_line` is the compiled function's line; `above` are its
    callers on the stack, `inside` the function and its callees.
    """

    distinct_id: int
    compile_key: int | None
    outcome: str
    frame_line: int | None
    above: tuple[StackFrame, ...] = ()
    inside: tuple[StackFrame, ...] = ()
    is_inlined: bool = False  # it broke in a function that the compiled one called


@dataclass(frozen=True)
class RecordedRun:
    compiles: Sequence[RecordedCompile] = ()
    recompiles: Sequence[RecordedRecompile] = ()
    breaks: Sequence[RecordedBreak] = ()
    occurrences: Sequence[BreakOccurrence] = ()
    code: Sequence[SourceLines] = ()
    # Compiles of what a skipped frame's function called, in their order, by the frame's key.
    called: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    trials: Sequence[TriedFix] = ()  # those of the run itself first, then the newest
    settings: Mapping[str, object] = field(default_factory=dict)  # dynamo's, of all its compiles
    torch_version: tuple[int, int] = (2, 13)
    steps: RunSteps | None = None
