"""Fixes of graph breaks, chosen by torch's registry id and the line that breaks."""

from __future__ import annotations

from compileboard.collectors.fixes.fix import BreakFacts, SuggestedFix


def suggest_break_fixes(facts: BreakFacts) -> list[SuggestedFix]:
    """List the fixes for one graph break, the best first; empty where nothing is known."""
    return []
