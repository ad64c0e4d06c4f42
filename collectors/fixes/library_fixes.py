"""What can be done where a graph breaks in a line of a package, which nobody edits."""

from __future__ import annotations

from dataclasses import replace

from compileboard.collectors.fixes.break_fixes import suggest_break_fixes
from compileboard.collectors.fixes.fix import BreakFacts, StackFrame, SuggestedFix, find_fix
from compileboard.collectors.fixes.statement import parse_statement, shorten


def suggest_library_fixes(facts: BreakFacts, *, is_call_compiled: bool) -> list[SuggestedFix]:
    """Suggest settings, a newer torch, and changes of the user's call."""
    fixes = [
        replace(suggested, edits=())
        for suggested in suggest_break_fixes(facts)
        if suggested.settings or suggested.fix.gone_in
    ]
    if facts.call is None or facts.file is None:
        return fixes
    names = {
        "place": f"`{facts.call.place}`",
        "package": facts.file.removeprefix("site-packages/").partition("/")[0],
        "expression": _quote_call(facts.call),
    }
    for fix_id in ("library_call", "library_outside")[: 1 + is_call_compiled]:
        fix = find_fix("graph_break", fix_id)
        fixes.append(SuggestedFix(fix, fix.title.format_map(names)))
    return fixes


def _quote_call(call: StackFrame) -> str:
    statement = parse_statement(call.code or "")
    calls = list(statement.calls()) if statement else []
    return f"`{shorten(statement.segment(calls[0]))}`" if statement and calls else "the call"
