"""The shape of the tree: small folders, one name a class, imports without a cycle."""

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

from tests.tools.observed import ROOT

TREES = ("app", "collectors")
MODULES_PER_FOLDER = 15
REGISTRIES = {Path("collectors/bench/suites/builtin")}  # a module a model
VAGUE_NAMES = {"it", "found", "said", "wanted", "place", "one", "kept", "gone", "met", "who"}
VAGUE_VERBS = {"Carry", "Draw", "Give", "Hold", "Keep", "Know", "Look", "Say", "Tell"}
GIVEN_NAMES = {  # the API's, in its JSON
    ("app/api/fleet/search.py", "found"),
    ("app/queries/run/aot.py", "place"),
}


def list_modules(top: str) -> list[Path]:
    return [path.relative_to(ROOT) for path in sorted((ROOT / top).rglob("*.py")) if "project" not in path.parts]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def test_a_folder_holds_at_most_fifteen_modules():
    for top in (*TREES, "tests", "benchmarks"):
        counts = Counter(path.parent for path in list_modules(top) if path.name != "__init__.py")
        large = {str(folder): count for folder, count in counts.items() if count > MODULES_PER_FOLDER}
        assert {name: count for name, count in large.items() if Path(name) not in REGISTRIES} == {}


def test_no_class_name_is_there_twice():
    homes = defaultdict(list)
    for path in (path for top in TREES for path in list_modules(top) if path.parent not in REGISTRIES):
        for node in ast.walk(parse(path)):
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
        for node in ast.walk(parse(path)):
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
    """List the names that a module binds, those of its functions without their underscores."""
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.name.strip("_") for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return names | {node.arg for node in nodes if isinstance(node, ast.arg)}


def list_docstrings(tree: ast.Module) -> list[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]


def read_modules() -> dict[str, ast.Module]:
    paths = [path for top in (*TREES, "tests", "benchmarks") for path in list_modules(top)]
    return {str(path): parse(path) for path in paths}


def test_names_are_nouns():
    vague = {(path, name) for path, tree in read_modules().items() for name in list_names(tree) & VAGUE_NAMES}
    assert vague - GIVEN_NAMES == set()


def test_docstrings_begin_with_what_is_returned_or_done():
    first_words = [
        (path, text.split()[0]) for path, tree in read_modules().items() for text in list_docstrings(tree) if text
    ]
    assert [(path, word) for path, word in first_words if word.strip(",.:;") in VAGUE_VERBS] == []


def test_names_in_templates_are_nouns():
    bound = rf"\{{%-?\s*(?:for|set|macro)\b[^%]*\b(?:{'|'.join(sorted(VAGUE_NAMES))})\b(?=[^%]*(?: in |=|\)))"
    templates = sorted((ROOT / "templates").rglob("*.html"))
    assert [path.name for path in templates if re.search(bound, re.sub(r"\"[^\"]*\"", "", path.read_text()))] == []
