"""Evaluate symbolic sizes as sympy writes them, such as "2*s0 + 1", as plain arithmetic."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

MOST_CHARS = 2_000
MOST_POWER = 64
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _divide(left: Any, right: Any) -> Any:
    return left // right  # sympy writes an exact division as a fraction


def _floor(value: Any) -> Any:
    return value


_CALLS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("FloorDiv", "CleanDiv", "IntTrueDiv"), _divide),
    **dict.fromkeys(("Mod", "PythonMod"), operator.mod),
    **dict.fromkeys(("Max", "max"), max),
    **dict.fromkeys(("Min", "min"), min),
    "CeilDiv": lambda left, right: -(-left // right),
    **dict.fromkeys(("floor", "TruncToInt", "ToFloat", "FloorToInt", "Identity"), _floor),
}


def evaluate_size(size: int | str, symbols: Mapping[str, Any]) -> Any:
    """Return a size for values of its symbols, which may be numbers or torch's symbolic ints.

    Raises ValueError for an unknown symbol or an expression that is not arithmetic.
    """
    if isinstance(size, int):
        return size
    if len(size) > MOST_CHARS:
        raise ValueError(f"a size of {len(size):,} characters; expected at most {MOST_CHARS:,}")
    try:
        return _evaluate(ast.parse(size.strip(), mode="eval").body, symbols)
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError, TypeError) as error:
        raise ValueError(
            f"{size[:80]!r} is no size: expected arithmetic of symbols ({error})"
        ) from None


def list_symbols(size: int | str) -> list[str]:
    if isinstance(size, int):
        return []
    try:
        tree = ast.parse(size.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return sorted(
        {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and id(node) not in called
        }
    )


def _evaluate(node: ast.expr, symbols: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in symbols:
            raise ValueError(f"the size of symbol {node.id!r} is not recorded")
        return symbols[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, symbols)
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, symbols), _evaluate(node.right, symbols)
        if isinstance(node.op, ast.Div):
            return _divide(left, right)
        if (
            isinstance(node.op, ast.Pow)
            and isinstance(node.right, ast.Constant)
            and 0 <= right <= MOST_POWER
        ):
            return left**right
        if type(node.op) in _BINARY:
            return _BINARY[type(node.op)](left, right)
    node = _join_ceiling(node)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _CALLS
        and not node.keywords
    ):
        return _CALLS[node.func.id](*(_evaluate(part, symbols) for part in node.args))
    raise ValueError(f"{ast.unparse(node)[:80]!r} is no size: expected arithmetic of symbols")


def _join_ceiling(node: ast.expr) -> ast.expr:
    """Replace CeilToInt(IntTrueDiv(a, b)) by CeilDiv(a, b), because a plain division would be exact
    or rounded down.
    """
    match node:
        case ast.Call(
            func=ast.Name(id="CeilToInt"),
            args=[ast.Call(func=ast.Name(id="IntTrueDiv"), args=[_, _] as parts)],
        ):
            return ast.Call(func=ast.Name(id="CeilDiv"), args=parts, keywords=[])
    return node
