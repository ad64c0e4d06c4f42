"""Apply suggested fixes to a program's text, as a person who follows them to the letter."""

from __future__ import annotations

from collections.abc import Sequence

from compileboard.collectors.fixes.breaks.program import with_settings
from compileboard.collectors.fixes.fix import SuggestedFix


def apply_fix(text: str, suggested: SuggestedFix) -> str:
    """Return a program with a fix's edits and settings."""
    return apply_fixes(text, [suggested])


def apply_fixes(text: str, suggestions: Sequence[SuggestedFix]) -> str:
    """Return a program with the edits and settings of several fixes."""
    lines = text.splitlines()
    edits = {edit.line: edit for suggested in suggestions for edit in suggested.edits}
    for _, edit in sorted(edits.items(), reverse=True):
        lines[edit.line - 1 : edit.line - 1 + edit.line_count] = edit.replacement
    changed = "\n".join(lines) + "\n"
    settings = dict.fromkeys(setting for suggested in suggestions for setting in suggested.settings)
    return with_settings(changed, *settings) if settings else changed
