"""Apply a suggested fix to a program's text, as a person who follows it to the letter."""

from compileboard.collectors.fixes.breaks.program import with_settings
from compileboard.collectors.fixes.fix import SuggestedFix


def apply_fix(text: str, suggested: SuggestedFix) -> str:
    """Return a program with a fix's edits and settings."""
    lines = text.splitlines()
    for edit in sorted(suggested.edits, key=lambda edit: -edit.line):
        lines[edit.line - 1 : edit.line - 1 + edit.line_count] = edit.replacement
    changed = "\n".join(lines) + "\n"
    return with_settings(changed, *suggested.settings) if suggested.settings else changed
