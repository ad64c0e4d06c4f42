"""Parse the statement around a recorded line and edit parts of it without changing the rest."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from compileboard.collectors.fixes.fix import Block, BreakFacts, LineEdit, SourceLines

MAX_LINES = 8
_OPEN_ENDS = ("(", "[", "{", ",", "\\", "+", "-", "*", "/", "=", " and", " or", " not", "|", "&")
_CONTINUED = ("and ", "or ", "+ ", "- ", "* ", "/ ", "| ", "& ", ".", ")", "]", "}")
_MAX_EXPRESSION_LENGTH = 48


@dataclass(frozen=True)
class Statement:
    text: str
    indent: str
    line: int
    node: ast.stmt
    parents: dict[ast.AST, ast.AST] = field(repr=False, compare=False)

    @property
    def line_count(self) -> int:
        return self.text.count("\n") + 1

    def nodes(self) -> Iterator[ast.AST]:
        return ast.walk(self.node)

    def calls(self) -> Iterator[ast.Call]:
        return (node for node in self.nodes() if isinstance(node, ast.Call))

    def segment(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.text, node) or ""

    def replace(self, file: str, *changes: tuple[ast.AST, str]) -> LineEdit | None:
        spans = sorted(((self._span(node), text) for node, text in changes), reverse=True)
        data = self.text.encode()
        for (start, end), text in spans:
            data = data[:start] + text.encode() + data[end:]
        return self.rewrite(file, data.decode())

    def rewrite(self, file: str, text: str) -> LineEdit | None:
        if _parse(text) is None:
            return None
        lines = tuple(self.indent + line if line else line for line in text.split("\n"))
        return LineEdit(file, self.line, self.line_count, lines)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        """Return a part's span in bytes, because ast counts columns in UTF-8 bytes."""
        starts = [0]
        for line in self.text.split("\n"):
            starts.append(starts[-1] + len(line.encode()) + 1)
        target = node if isinstance(node, ast.expr | ast.stmt) else self.node
        end_line, end_column = target.end_lineno or target.lineno, target.end_col_offset or 0
        return starts[target.lineno - 1] + target.col_offset, starts[end_line - 1] + end_column


def find_statement(facts: BreakFacts) -> Statement | None:
    if facts.lines and facts.first_line is not None and facts.line is not None:
        position = facts.line - facts.first_line
        if 0 <= position < len(facts.lines):
            return _find_in(facts.lines, position, facts.first_line)
    text = (facts.source_line or "").strip()
    return _make(text, "", facts.line or 0) if text else None


def find_whole(lines: Sequence[str], first_line: int, line: int) -> str | None:
    """Return the statement that contains a line, without its indentation."""
    position = line - first_line
    found = _find_in(lines, position, first_line) if 0 <= position < len(lines) else None
    return found.text if found else None


def mark_part(line: str) -> str:
    """Mark a line that is only a part of its statement.

    >>> mark_part("print(")
    'print( …'
    """
    line = line.strip()
    is_end = line.startswith(_CONTINUED) or line.count(")") > line.count("(")
    before = "… " if is_end else ""
    return before + line + (" …" if _is_open(line) else "")


def parse_statement(text: str) -> Statement | None:
    return _make(text.strip(), "", 1)


_BLOCKS: tuple[Block, ...] = ("for", "while", "with", "try")


def find_block(code: SourceLines | None, line: int | None) -> tuple[Block, int] | None:
    """Find the loop, `with` or `try` of the same function that contains a line, and its line."""
    if code is None or line is None or line < code.first_line:
        return None
    depth = None
    for position in range(min(line - code.first_line, len(code.lines) - 1), -1, -1):
        text = code.lines[position]
        if not text.strip() or (depth is not None and _depth(text) >= depth):
            continue
        depth = _depth(text)
        word = re.split(r"[\s:(]", text.strip().removeprefix("async "), maxsplit=1)[0]
        for block in _BLOCKS:
            if word == block and (block != "try" or position < line - code.first_line):
                return block, code.first_line + position
        if word in ("def", "class"):
            return None
    return None


def dotted_name(node: ast.AST) -> str:
    """Return a dotted name such as `torch.nn.Linear`, "" for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def shorten(text: str) -> str:
    """Replace the arguments of a long call by an ellipsis; other text is unchanged.

    >>> shorten("torch.nn.functional.scaled_dot_product_attention(query, key, value)")
    'torch.nn.functional.scaled_dot_product_attention(…)'
    """
    text = " ".join(text.split())
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    if len(text) <= _MAX_EXPRESSION_LENGTH or not isinstance(node, ast.Call):
        return text
    return f"{ast.get_source_segment(text, node.func)}({'…' * bool(node.args or node.keywords)})"


def _find_in(lines: Sequence[str], position: int, first_line: int) -> Statement | None:
    for start in range(position, max(-1, position - MAX_LINES), -1):
        before = next((line for line in reversed(lines[:start]) if line.strip()), "")
        if _is_open(before) or not lines[start].strip():
            continue
        indent = lines[start][: _depth(lines[start])]
        for end in range(position, min(len(lines), start + MAX_LINES)):
            part = lines[start : end + 1]
            if any(line.strip() and not line.startswith(indent) for line in part):
                break
            made = _make(
                "\n".join(line[len(indent) :] for line in part), indent, first_line + start
            )
            if made is not None:
                return made
    return None


def _make(text: str, indent: str, line: int) -> Statement | None:
    node = _parse(text)
    if node is None:
        return None
    parents = {child: parent for parent in ast.walk(node) for child in ast.iter_child_nodes(parent)}
    return Statement(text, indent, line, node, parents)


def _parse(text: str) -> ast.stmt | None:
    for whole in (text, f"{text} pass", f"{text}\n pass"):
        try:
            if text.startswith("elif "):
                branch = ast.parse(f"if 1:\n pass\n{whole}").body[0]
                body = branch.orelse if isinstance(branch, ast.If) else []
                for node in body:
                    ast.increment_lineno(node, -2)
            else:
                body = ast.parse(whole).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return body[0] if len(body) == 1 else None
    return None


def _is_open(line: str) -> bool:
    return line.split(" #")[0].rstrip().endswith(_OPEN_ENDS)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
