"""See whether a file can have a class, from its text alone: nothing of it is run in the command's own process."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from compileboard.collectors.bench.suites.user_list import OnlyError

# With one of these a module may have names that its text does not show; then building it says what is missing.
HIDING = frozenset(("*", "exec", "globals", "locals", "vars", "setattr", "modules", "__dict__", "__getattr__"))


def check_class(path: str, name: str) -> None:
    """Let a class pass that the file may have: defined, imported or assigned anywhere in it, or beyond its text.

    Raises: OnlyError in words if the file is no Python or has no such name; OSError.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an odd escape: those are the file's own matter
            tree = ast.parse(Path(path).read_bytes(), path)
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        said = error.msg if isinstance(error, SyntaxError) else error
        raise OnlyError(f"{path} cannot be imported: {type(error).__name__}{line}: {said}") from None
    except (RecursionError, MemoryError):
        return
    names = frozenset(_names(tree))
    if name not in names and not names & HIDING:
        classes = [it.name for it in tree.body if isinstance(it, ast.ClassDef)]
        raise OnlyError(f"{path} has no class {name!r}; its classes are {', '.join(classes) or 'none'}")


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield whatever is named in a file, and so everything that it binds."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
