"""Guard sources: as a person names them, and as torch's dynamic_sources setting does."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence

_LONGEST = 2_000  # characters; a longer source is not worth the parser's memory
_GLOBAL = re.compile(r"^G\[(['\"])(?P<name>\w+)\1\]")
_ROOT = re.compile(r"^(?P<root>[A-Za-z_]\w*)(?P<rest>.*)$", re.DOTALL)
_ARGUMENT = re.compile(r"^args\[(?P<place>\d+)\]")
_KEYWORD = re.compile(r"^kwargs\[(['\"])(?P<name>\w+)\1\]")
_BREAK_VALUE = re.compile(r"\b___stack\d*|\btorch_dynamo_resume_in_\w*")


def name_source(source: str | None, default: str = "the value") -> str:
    """Return a source as the user wrote it: SCALE for G['SCALE'], self for the module behind torch's wrapper."""
    if not source:
        return default
    source = _GLOBAL.sub(lambda match: match["name"], source)
    source = _ARGUMENT.sub(lambda match: f"argument {int(match['place']) + 1}", source)
    source = _KEYWORD.sub(lambda match: f"argument {match['name']}", source)
    source = re.sub(r"^fn\.", "self.", source)
    source = re.sub(r"\._(?:modules|parameters|buffers)\[(['\"])(\w+)\1\]", r".\2", source)
    return _BREAK_VALUE.sub("the value left by the break", source)


def name_sources(sources: Sequence[str | None]) -> str:
    """Return several sources as a list in words: "x, y and z"."""
    names = list(dict.fromkeys(name_source(source) for source in sources))
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def format_dynamic_sources(sources: Sequence[str], dim: int | None, torch_version: tuple[int, int]) -> str | None:
    """Write torch.compiler.config.dynamic_sources for these sources; None where torch or a name does not allow it."""
    if torch_version < (2, 7):
        return None
    suffix = f":{dim}" if dim is not None and torch_version >= (2, 13) else ""
    entries = [_format_entry(source) for source in dict.fromkeys(sources)]
    return None if None in entries else ",".join(f"{entry}{suffix}" for entry in entries)


def _format_entry(source: str) -> str | None:
    match = _ROOT.match(source)
    if match is None or re.search(r"[\s,:]", source) or not _is_path(source):
        return None
    return source if match["root"] == "G" else f"L['{match['root']}']{match['rest']}"


def _is_path(source: str) -> bool:
    """Return True if a source is a name, attributes and constant items only."""
    if len(source) > _LONGEST or "\x00" in source:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            node: ast.AST = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            return False
        node = node.value
    return isinstance(node, ast.Name)
