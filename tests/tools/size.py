"""Count the syntax nodes of each room: `python -m tests.tools.size`; `--lower` records what fell.

A node is a node of Python's syntax tree, without docstrings and load and store marks, so that the
count does not change with line length, blank lines or comments.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path

import tomllib

from tests.tools.observed import ROOT

RECORDED = ROOT / "tests/contract/sizes.toml"
TOPS = ("app", "collectors", "compileboard")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def count_nodes(source: str) -> int:
    tree = ast.parse(source)
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            docstrings |= {id(node.body[0]), id(node.body[0].value)}  # type: ignore[attr-defined]
    return sum(
        id(node) not in docstrings and not isinstance(node, (ast.Load, ast.Store))
        for node in ast.walk(tree)
    )


def count_rooms(root: Path = ROOT) -> dict[str, int]:
    rooms: Counter[str] = Counter()
    for path in (path for top in TOPS for path in sorted((root / top).rglob("*.py"))):
        if not any(parent.is_symlink() for parent in path.parents):
            *folders, _name = path.relative_to(root).parts
            rooms["/".join(folders[:2])] += count_nodes(path.read_text())
    return dict(rooms)


def read_recorded() -> dict[str, int]:
    """Return the nodes that each room may have: its recorded size and the rises."""
    recorded = tomllib.loads(RECORDED.read_text())
    rooms = Counter(recorded["rooms"])
    for rise in recorded.get("rise", []):
        assert rise["reason"], f"a rise of {rise['room']} needs its reason"
        rooms[rise["room"]] += rise["nodes"]
    return dict(rooms)


def lower() -> None:
    """Write the rooms' sizes anew. Rises that are used up by a fall go with it."""
    counted, allowed = count_rooms(), read_recorded()
    grown = {room for room, nodes in counted.items() if nodes > allowed.get(room, 0)}
    if grown:
        sys.exit(
            f"these rooms grew: {', '.join(sorted(grown))}. Take something away, or add a "
            "[[rise]] with its reason."
        )
    head = re.split(r"^\[", RECORDED.read_text(), maxsplit=1, flags=re.MULTILINE)[0]
    lines = [f'"{room}" = {nodes}' for room, nodes in sorted(counted.items())]
    RECORDED.write_text(head + "[rooms]\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    if "--lower" in sys.argv:
        lower()
    for name, nodes in sorted(count_rooms().items(), key=lambda room: -room[1]):
        print(f"{name:28}{nodes:10,}")
    print(f"{'all':28}{sum(count_rooms().values()):10,}")
