"""An artifact's text as a page shows it: laid out, coloured, and no longer than a page can be."""

from __future__ import annotations

from dataclasses import dataclass

from compileboard.app.analysis.artifact_words import guess_language, lay_out
from compileboard.app.analysis.code import CodeLines, highlight

SHOWN_CHARS = 500_000  # ≈ 10 000 lines: the largest text of the recorded models has 421 000
SHOWN_LINES = 12_000
LAID_OUT_CHARS = 2_000_000  # longer JSON stays on its one line


@dataclass(frozen=True)
class TextView:
    """Hold a text's lines; `remark` says what of it is not shown."""

    language: str
    lines: CodeLines
    remark: str


def view_text(name: str, text: str, encoding: str) -> TextView:
    """Prepare a text for a page."""
    language = guess_language(name, text[:SHOWN_CHARS], encoding)
    whole = lay_out(text, language) if len(text) <= LAID_OUT_CHARS else text
    shown = whole
    if len(shown) > SHOWN_CHARS:
        head = shown[:SHOWN_CHARS]
        shown = head.rpartition("\n")[0] or head
    if shown.count("\n") > SHOWN_LINES:
        shown = "\n".join(shown.split("\n", SHOWN_LINES)[:SHOWN_LINES])
    remark = ""
    if len(shown) < len(whole):
        remark = f"This is the beginning: {len(shown):,} of {len(whole):,} characters. The raw text has all of it."
    return TextView(language, highlight(shown, language), remark)
