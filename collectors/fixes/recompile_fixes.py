"""Fixes of recompiles, chosen by the guard that failed."""

from __future__ import annotations

from compileboard.collectors.fixes.fix import RecompileFacts, SuggestedFix


def suggest_recompile_fixes(facts: RecompileFacts) -> list[SuggestedFix]:
    """List the fixes for one recompile cause, the best first; empty where nothing is known."""
    return []
