"""Change a module in every small way and count what its tests see.

    python -m tests.tools.mutants MODULE [TEST …]

The tests are those of tests/unit that import the module (else those that import what imports it),
or the ones given. Each change is tried in a fork of a process that has run them on the unchanged
module: what their helpers remember of that is forgotten first. Everything happens in a copy of the
tree; the changes that no test saw are printed as diffs.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOPS = ("app", "collectors")
SUBJECTS = ("app", "collectors/store", "collectors/decode")

_SETTINGS = """
[tool.mutmut]
source_paths = ["compileboard"]
only_mutate = [{module}]
also_copy = {also_copy}
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-p", "no:cacheprovider"]
track_dependencies = false
use_git_change_detection = false
"""
_FORGET = """

def pytest_sessionstart() -> None:
    import sys

    for name, module in list(sys.modules.items()):
        if name.startswith("tests."):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
"""


def imported_modules(path: Path) -> set[str]:
    """Name every module that a file may import, `from a import b` as both a and a.b."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def find_tests(root: Path, module: str) -> list[str]:
    """List the unit tests nearest to a module: those that import it, else an importer of it, and so
    on.
    """
    sources = {_dotted(root, path): imported_modules(path) for path in _python(root, TOPS)}
    tests = {
        str(path.relative_to(root)): imported_modules(path)
        for path in _python(root, ("tests/unit",))
    }
    near, seen = {_dotted(root, root / module)}, set[str]()
    while near:
        if nearest := sorted(
            name for name, names in tests.items() if names & near and "/test_" in name
        ):
            return nearest
        seen |= near
        near = {name for name, names in sources.items() if names & near} - seen
    return []


def run_mutants(module: str, tests: list[str]) -> int:
    """Print the score of one module and the changes that survived; give what the process ends
    with.
    """
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        _copy_tree(copy)
        also_copy = [
            entry.name
            for entry in copy.iterdir()
            if entry.name not in ("compileboard", "tests", *TOPS)
        ]
        settings = {"module": f"compileboard/{module}", "also_copy": also_copy, "tests": tests}
        with (copy / "pyproject.toml").open("a", encoding="utf-8") as file:
            file.write(
                _SETTINGS.format(**{name: json.dumps(value) for name, value in settings.items()})
            )
        with (copy / "tests" / "conftest.py").open("a", encoding="utf-8") as file:
            file.write(_FORGET)
        run = _mutmut(copy, "run", "--max-children", "1")
        if run.returncode:
            print(run.stdout[-4000:], run.stderr[-4000:], sep="\n", file=sys.stderr)
            return run.returncode
        _mutmut(copy, "export-cicd-stats")
        counts = json.loads(
            (copy / "mutants" / "mutmut-cicd-stats.json").read_text(encoding="utf-8")
        )
        for name in _survivors(_mutmut(copy, "results").stdout.splitlines()):
            print(_mutmut(copy, "show", name).stdout)
    killed = counts["killed"] + counts["timeout"]
    print(
        f"{module}: {killed} of {counts['total']} changes seen, "
        f"{killed / max(counts['total'], 1):.1%}"
    )
    print(f"tests: {' '.join(tests)}")
    return 0


def _survivors(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        name, _, state = line.strip().partition(": ")
        if state in ("survived", "no tests"):
            yield name


def _mutmut(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mutmut", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def _copy_tree(target: Path) -> None:
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(
        listing, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    for top in (*TOPS, "templates", "static"):  # mutmut names a module after its path
        (target / top).rename(target / "compileboard" / top)
        (target / top).symlink_to(Path("compileboard") / top)


def _python(root: Path, folders: Iterable[str]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((root / folder).rglob("*.py"))


def _dotted(root: Path, path: Path) -> str:
    return ".".join(("compileboard", *path.relative_to(root).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


def main(argv: list[str]) -> int:
    """Run the mutants of one module, or say what is asked for."""
    if not argv or not (ROOT / argv[0]).is_file() or not argv[0].startswith(SUBJECTS):
        print(
            (
                f"expected a module below {', '.join(SUBJECTS)}: make mutants "
                f"MODULE={SUBJECTS[1]}/metrics.py"
            ),
            file=sys.stderr,
        )
        return 2
    module, tests = argv[0], argv[1:]
    if not (tests := tests or find_tests(ROOT, module)):
        print(
            f"no unit test reaches {module}: name some, make mutants MODULE={module} TESTS=…",
            file=sys.stderr,
        )
        return 2
    return run_mutants(module, tests)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
