"""Name the function that a line of a file lies in: torch's records have `forward`, a person needs `Model.forward`."""

from __future__ import annotations

import ast
import os
from bisect import bisect_right
from functools import lru_cache

FILE_LIMIT_BYTES = 4 << 20


def qualify(path: str, line: int, name: str) -> str | None:
    """Return the qualified name of the function that runs a line, or None where the file does not tell.

    `name` is the frame's own: the decorators and defaults of an inner function are run by the one around it. A frame
    that no function is named after (<lambda>, <listcomp>) gets the innermost around it.
    """
    starts, spans = _functions(path)
    best = None
    for index in range(bisect_right(starts, line)):
        start, end, qualified = spans[index]
        if start <= line <= end and (name.startswith("<") or qualified.rpartition(".")[2] == name):
            best = qualified  # sorted by start: the last one that holds the line is the innermost
    return best


@lru_cache(maxsize=512)
def _functions(path: str) -> tuple[list[int], list[tuple[int, int, str]]]:
    try:
        if not path.endswith(".py") or os.path.getsize(path) > FILE_LIMIT_BYTES:
            return [], []
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return [], []
    spans: list[tuple[int, int, str]] = []
    _walk(tree, "", spans)
    spans.sort()
    return [span[0] for span in spans], spans


def _walk(node: ast.AST, prefix: str, spans: list[tuple[int, int, str]]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            _walk(child, f"{prefix}{child.name}.", spans)
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name = prefix + child.name
            start = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
            spans.append((start, child.end_lineno or child.lineno, name))
            _walk(child, f"{name}.<locals>.", spans)
        else:
            _walk(child, prefix, spans)
