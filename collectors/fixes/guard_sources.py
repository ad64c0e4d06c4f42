"""Format guard sources for people, and for torch's dynamic_sources setting."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence

_LONGEST = 2_000  # characters; a longer source is not worth the parser's memory
_GLOBAL = re.compile(r"^G\[(['\"])(?P<name>\w+)\1\]")
_ROOT = re.compile(r"^(?P<root>[A-Za-z_]\w*)(?P<rest>.*)$", re.DOTALL)
_ARGUMENT = re.compile(r"^args\[(?P<place>\d+)\]")
_ENTRY = re.compile(r"^(?P<scope>[LG])\['(?P<name>\w+)'\](?P<rest>[^\s,:]*):(?P<dim>\d{1,4})$")
_KEYWORD = re.compile(r"^kwargs\[(['\"])(?P<name>\w+)\1\]")
_BREAK_VALUE = re.compile(r"\b___stack\d*|\btorch_dynamo_resume_in_\w*")


def name_source(source: str | None, default: str = "the value") -> str:
    """Return a source as the user wrote it: SCALE for G['SCALE'], self for the module behind
    torch's wrapper.
    """
    if not source:
        return default
    source = _GLOBAL.sub(lambda match: match["name"], source)
    source = _ARGUMENT.sub(lambda match: f"argument {int(match['place']) + 1}", source)
    source = _KEYWORD.sub(lambda match: f"argument {match['name']}", source)
    source = re.sub(r"^fn\.", "self.", source)
    source = re.sub(r"\._(?:modules|parameters|buffers)\[(['\"])(\w+)\1\]", r".\2", source)
    return _BREAK_VALUE.sub("the value left by the break", source)


def name_sources(sources: Sequence[str | None]) -> str:
    names = list(dict.fromkeys(name_source(source) for source in sources))
    return _join(names)


def name_dimensions(entries: Sequence[tuple[str | None, int | None]]) -> str:
    dims_by_source: dict[str, list[str]] = {}
    for source, dim in entries:
        dims_by_source.setdefault(name_source(source), []).append(
            "that differs" if dim is None else str(dim)
        )
    sources_by_dims: dict[tuple[str, ...], list[str]] = {}
    for source, dims in dims_by_source.items():
        sources_by_dims.setdefault(tuple(dict.fromkeys(dims)), []).append(source)
    return ", ".join(
        f"dimension{'s' * (len(dims) > 1)} {_join(dims)} of {_join(sources)}"
        for dims, sources in sources_by_dims.items()
    )


def _join(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def parse_dynamic_source(entry: str) -> tuple[str, int] | None:
    """Parse "L['x'].y:0" as source x.y and dimension 0; None for a number, a parameter or a view's
    base.
    """
    match = _ENTRY.match(entry)
    if match is None or re.search(r"\._(?:parameters|buffers)\[|\._base\b", entry):
        return None
    source = (
        f"G['{match['name']}']{match['rest']}"
        if match["scope"] == "G"
        else f"{match['name']}{match['rest']}"
    )
    return (source, int(match["dim"])) if _is_path(source) else None


def format_dynamic_sources(
    sources: Sequence[tuple[str, int | None]], torch_version: tuple[int, int]
) -> str | None:
    """Format torch.compiler.config.dynamic_sources, None if torch's version or a name does not
    allow it.
    """
    if torch_version < (2, 7):
        return None
    entries = []
    for source, dim in sources:
        entry = _format_entry(source)
        if entry is None:
            return None
        entries.append(entry if dim is None or torch_version < (2, 13) else f"{entry}:{dim}")
    return ",".join(dict.fromkeys(entries))


def _format_entry(source: str) -> str | None:
    match = _ROOT.match(source)
    if match is None or re.search(r"[\s,:]", source) or not _is_path(source):
        return None
    return source if match["root"] == "G" else f"L['{match['root']}']{match['rest']}"


def _is_path(source: str) -> bool:
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
