"""Follow suggested fixes to the letter, and say what became of the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from compileboard.collectors.fixes.fix import SuggestedFix
from tests.integration.fixes.running import Outcome, is_equal, run_text
from tests.programs.advised.edits import with_settings

Verdict = Literal["crash", "wrong result", "no effect", "fewer", "none left"]
SILENT = {"function_pure", "library_call", "print_removed"}  # as their cost says


@dataclass(frozen=True)
class Followed:
    """What came of fixes that were followed."""

    verdict: Verdict
    note: str


def apply_fixes(text: str, suggestions: Sequence[SuggestedFix]) -> str:
    """Return a program with the edits and settings of fixes."""
    lines = text.splitlines()
    edits = {edit.line: edit for suggested in suggestions for edit in suggested.edits}
    for _, edit in sorted(edits.items(), reverse=True):
        lines[edit.line - 1 : edit.line - 1 + edit.line_count] = edit.replacement
    changed = "\n".join(lines) + "\n"
    settings = dict.fromkeys(setting for suggested in suggestions for setting in suggested.settings)
    return with_settings(changed, *settings) if settings else changed


def follow(text: str, suggestions: Sequence[SuggestedFix]) -> Followed:
    """Apply fixes of one kind to a program, run it beside the program without, and compare."""
    is_silent = any(suggested.fix.id in SILENT for suggested in suggestions)
    return compare(text, apply_fixes(text, suggestions), suggestions[0].fix.kind, is_silent)


def compare(text: str, changed: str, kind: str, is_silent: bool = False) -> Followed:
    """Run a program with and without a change; what it returns, prints, warns of and raises has to
    be that of eager mode.
    """
    before, after, eager = run_text(text), run_text(changed), run_text(text, "eager")
    if after.error != eager.error:
        return Followed("crash", str(after.error))
    if not is_equal(after.result, eager.result):
        return Followed("wrong result", f"{after.result}")
    lost = eager.reported - after.reported
    if not is_silent and (after.printed != eager.printed or lost):
        return Followed("wrong result", f"printed {after.printed!r}, lost {dict(lost)}")
    old, new = count_trouble(before, kind), count_trouble(after, kind)
    verdict: Verdict = "none left" if new == 0 else "fewer" if new < old else "no effect"
    return Followed(verdict, f"{old} → {new}: {dict(after.gb_ids)}")


def count_trouble(outcome: Outcome, kind: str) -> int:
    """Count the recompiles, the breaks and the functions that run eagerly for them, or both."""
    recompile_count = len(outcome.recompiles) if kind != "graph_break" else 0
    return recompile_count + (outcome.trouble_count if kind != "recompile" else 0)
