"""A graph break with its parsed line."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from compileboard.collectors.fixes.fix import BreakFacts, LineEdit, SuggestedFix, find_fix
from compileboard.collectors.fixes.statement import (
    Statement,
    dotted_name,
    find_block,
    find_statement,
    has_line_before,
    list_following,
    shorten,
)

_BREAKS = re.compile(
    r"\.item\(|\.tolist\(|\bprint\(|\bgraph_break\(|\blog(?:ger|ging)?\.\w+\(|\btime\.|\.numpy\("
)
_GENERIC = {
    "expression": "the call",
    "call": "the call",
    "condition": "the condition",
    "tensor": "tensor",
    "mask": "mask",
    "function": "the function",
}


@dataclass
class BreakSite:
    facts: BreakFacts
    statement: Statement | None = field(init=False)

    def __post_init__(self) -> None:
        self.statement = find_statement(self.facts)

    @cached_property
    def following(self) -> Sequence[Statement | str]:
        return list_following(self.facts, self.statement) if self.statement else []

    @cached_property
    def calls(self) -> list[ast.Call]:
        return list(self.statement.calls()) if self.statement else []

    @property
    def line(self) -> str:
        return (self.facts.source_line or (self.statement.text if self.statement else "")).strip()

    @property
    def block(self) -> str | None:
        return find_block(self.facts, self.statement) if self.statement else None

    @cached_property
    def hides_breaks(self) -> bool:
        """True if the loop has more such lines, so that without this break the next one moves the
        whole loop to eager.
        """
        if not self.facts.skipped_count or self.block not in ("for", "while"):
            return False
        texts = [part if isinstance(part, str) else part.text for part in self.following]
        return any(_BREAKS.search(text) for text in texts)

    def find_call(self, *names: str) -> ast.Call | None:
        for call in self.calls:
            name = dotted_name(call.func) or getattr(call.func, "attr", "")
            if any(name == wished or name.endswith("." + wished) for wished in names):
                return call
        return None

    def quote(self, node: ast.AST | None) -> str | None:
        text = self.statement.segment(node) if self.statement and node is not None else ""
        return f"`{shorten(text)}`" if text else None

    def suggest(
        self,
        fix_id: str,
        *,
        edit: LineEdit | None = None,
        settings: tuple[str, ...] | None = None,
        given: Mapping[str, str | None] | None = None,
        **names: str | None,
    ) -> SuggestedFix:
        fix = find_fix("graph_break", fix_id)
        values = {
            **_GENERIC,
            **{name: text for name, text in {**(given or {}), **names}.items() if text},
        }
        title = fix.title.format_map(values).replace(
            "Call the call ", "Make the call "
        )  # its text is unknown
        if self.facts.skipped_count and fix.after is not None:
            function = (self.facts.function or "").rsplit(".", 1)[-1]
            title += (
                f": all of {f'`{function}`' if function.isidentifier() else 'the function'} "
                "runs eagerly now"
            )
        if self.hides_breaks:
            return SuggestedFix(fix, title)
        return SuggestedFix(
            fix, title, (edit,) if edit else (), fix.settings if settings is None else settings
        )

    def remove_line(self) -> LineEdit | None:
        if (
            self.statement is None
            or self.facts.file is None
            or not isinstance(self.statement.node, ast.Expr)
        ):
            return None
        if has_line_before(self.facts, self.statement):
            return LineEdit(self.facts.file, self.statement.line, self.statement.line_count, ())
        return self.statement.rewrite(self.facts.file, "pass")
