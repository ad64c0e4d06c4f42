"""No module imports itself in a circle."""

import ast
from functools import cache
from pathlib import Path

from tests.tools.observed import ROOT

TREES = ("app", "collectors")


def list_modules(top: str) -> list[Path]:
    return [
        path.relative_to(ROOT)
        for path in sorted((ROOT / top).rglob("*.py"))
        if "project" not in path.parts
    ]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def read_imports() -> dict[str, set[str]]:
    """Map each module to those of ours that it imports, inside functions and for types too."""
    names = {module_name(path): path for top in TREES for path in list_modules(top)}
    imports = {}
    for name, path in names.items():
        package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        imports[name] = set()
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ImportFrom):
                base = ".".join([*package[: len(package) - node.level + 1]] if node.level else [])
                source = ".".join(filter(None, [base, node.module]))
                for alias in node.names:
                    target = (
                        f"{source}.{alias.name}" if f"{source}.{alias.name}" in names else source
                    )
                    imports[name] |= {target} & (names.keys() - {name})
    return imports


def module_name(path: Path) -> str:
    return ".".join(("compileboard", *path.with_suffix("").parts)).removesuffix(".__init__")


def test_no_import_goes_in_a_circle():
    imports = read_imports()
    while leaves := [name for name, targets in imports.items() if not targets]:
        for name in leaves:
            del imports[name]
        imports = {name: targets - set(leaves) for name, targets in imports.items()}
    assert imports == {}
