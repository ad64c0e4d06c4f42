"""What a function does with a number that was read from a tensor, as far as its lines are recorded."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Literal

from compileboard.collectors.fixes.break_sites.statement import Statement, dotted_name

Use = Literal["arithmetic", "returned", "logged", "branch", "size", "loop", "unknown"]

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
_LOG_METHODS = {"debug", "info", "warning", "error", "critical", "log", "append", "add_scalar"}
_SIZE_CALLS = {"zeros", "ones", "empty", "full", "arange", "rand", "randn", "new_zeros", "new_ones", "new_empty"}
_MOST_NAMES = 4


def list_uses(statement: Statement, node: ast.AST, following: Sequence[Statement | str], depth: int = 0) -> set[Use]:
    """List what an expression's value is used for, in its statement and in those that follow."""
    use, names = _climb(statement, node)
    uses: set[Use] = {use} if use else set()
    for name in names:
        if use != "arithmetic" or not _is_tensor(name, following):
            uses |= _list_name_uses(name, following, depth)
    if not uses:
        uses.add("unknown")
    return uses


def _is_tensor(name: str, following: Sequence[Statement | str]) -> bool:
    """Return True if a name that was computed with a number is a tensor: it has methods or is indexed."""
    for statement in following:
        for node in statement.nodes() if isinstance(statement, Statement) else ():
            value = node.value if isinstance(node, ast.Attribute | ast.Subscript) else None
            if isinstance(value, ast.Name) and value.id == name:
                return True
    return False


def _list_name_uses(name: str, following: Sequence[Statement | str], depth: int) -> set[Use]:
    uses: set[Use] = set()
    mention = re.compile(rf"\b{re.escape(name)}\b")
    for position, statement in enumerate(following):
        if isinstance(statement, str):
            if mention.search(statement):
                uses.add("unknown")
            continue
        for node in statement.nodes():
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                later = following[position + 1 :]
                uses |= list_uses(statement, node, later, depth + 1) if depth < _MOST_NAMES else {"unknown"}
    return uses


def _climb(statement: Statement, node: ast.AST) -> tuple[Use | None, list[str]]:
    """Return what surrounds an expression, and the names that it is assigned to."""
    is_computed = False
    while (parent := statement.parents.get(node)) is not None:
        if isinstance(parent, ast.BinOp):
            if not isinstance(parent.op, _ARITHMETIC):
                return "unknown", []
            is_computed = True
        elif isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.USub):
            is_computed = True
        elif isinstance(parent, ast.Compare | ast.BoolOp | ast.UnaryOp):
            return ("branch" if _is_test(statement, parent) else "unknown"), []
        elif isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert):
            return ("branch" if getattr(parent, "test", None) is node else "unknown"), []
        elif isinstance(parent, ast.Call):
            return _name_call_use(parent, node), []
        elif isinstance(parent, ast.Slice):
            return "size", []
        elif isinstance(parent, ast.JoinedStr | ast.FormattedValue):
            return "logged", []
        elif isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
            return ("arithmetic" if is_computed else None), [parent.targets[0].id]
        elif isinstance(parent, ast.AugAssign) and isinstance(parent.target, ast.Name):
            if not isinstance(parent.op, _ARITHMETIC):
                return "unknown", []
            return "arithmetic", [parent.target.id]
        elif isinstance(parent, ast.Return):
            return ("arithmetic" if is_computed else "returned"), []
        elif isinstance(parent, ast.Tuple | ast.List | ast.Dict):
            return ("returned" if isinstance(statement.node, ast.Return) else "unknown"), []
        elif isinstance(parent, ast.For):
            return "loop", []
        else:
            return "unknown", []
        node = parent
    return "unknown", []


def _is_test(statement: Statement, node: ast.AST) -> bool:
    """Return True if a comparison decides which code runs."""
    while (parent := statement.parents.get(node)) is not None:
        if isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert):
            return getattr(parent, "test", None) is node
        if not isinstance(parent, ast.BoolOp | ast.UnaryOp | ast.Compare):
            return False
        node = parent
    return False


def _name_call_use(call: ast.Call, argument: ast.AST) -> Use:
    name = dotted_name(call.func)
    last = name.rsplit(".", 1)[-1] if name else getattr(call.func, "attr", "")
    if argument is call.func:
        return "unknown"
    if last == "range":
        return "loop"
    if last == "print" or last in _LOG_METHODS:
        return "logged"
    if last in _SIZE_CALLS:
        return "size"
    return "unknown"
