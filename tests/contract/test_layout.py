"""The shape of the tree: small folders, one name a class, imports without a cycle."""

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

from tests.tools.observed import ROOT

TREES = ("app", "collectors")
MODULES_PER_FOLDER = 15
REGISTRIES = {Path("collectors/bench/suites/builtin")}  # a module a model


def list_modules(top: str) -> list[Path]:
    return [path.relative_to(ROOT) for path in sorted((ROOT / top).rglob("*.py")) if "project" not in path.parts]


def test_a_folder_holds_at_most_fifteen_modules():
    for top in (*TREES, "tests", "benchmarks"):
        counts = Counter(path.parent for path in list_modules(top) if path.name != "__init__.py")
        large = {str(folder): count for folder, count in counts.items() if count > MODULES_PER_FOLDER}
        assert {name: count for name, count in large.items() if Path(name) not in REGISTRIES} == {}


def test_no_class_name_is_there_twice():
    homes = defaultdict(list)
    for path in (path for top in TREES for path in list_modules(top) if path.parent not in REGISTRIES):
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def read_imports() -> dict[str, set[str]]:
    """Map each module to those of ours that it imports, inside functions and for types too."""
    names = {module_name(path): path for top in TREES for path in list_modules(top)}
    imports = {}
    for name, path in names.items():
        package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        imports[name] = set()
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.ImportFrom):
                base = ".".join([*package[: len(package) - node.level + 1]] if node.level else [])
                source = ".".join(filter(None, [base, node.module]))
                for alias in node.names:
                    target = f"{source}.{alias.name}" if f"{source}.{alias.name}" in names else source
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


def list_names(tree: ast.AST) -> set[str]:
    """List the names that a module binds."""
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {node.arg for node in nodes if isinstance(node, ast.arg)}


def test_no_variable_is_called_it():
    tops = (*TREES, "tests", "benchmarks")
    modules = [path for top in tops for path in list_modules(top)]
    assert [str(path) for path in modules if "it" in list_names(ast.parse((ROOT / path).read_text()))] == []
    templates = sorted((ROOT / "templates").rglob("*.html"))
    bound = r"\{%-?\s*(?:for|set|macro)\b[^%]*\bit\b(?=[^%]*(?: in |=|\)))"
    assert [path.name for path in templates if re.search(bound, re.sub(r"\"[^\"]*\"", "", path.read_text()))] == []
