"""Models in a user's file: marked functions, classes and selections, listed in a child process."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from compileboard.collectors.bench import MARK
from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.suites import LOCAL
from compileboard.collectors.record.program import signal_group
from compileboard.start import shared_command

LIST_TIMEOUT_S = 120.0
TAIL_LINES = 12  # of what the child wrote when it died


class OnlyError(ValueError):
    """`--only` names no model."""


@dataclass(frozen=True)
class Marked:
    name: str
    batch_size: int
    trains: bool


def list_marked(path: str, timeout_s: float = LIST_TIMEOUT_S) -> list[Marked]:
    code, out, err = _ask(path, timeout_s)
    try:
        answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        tail = "\n".join(err.strip().splitlines()[-TAIL_LINES:])
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code < 0
            else f"ended with exit code {code}"
        )
        raise OnlyError(
            f"{path} cannot be imported: the process {how} while it was\n{tail}".rstrip()
        ) from None
    if "error" in answer:
        raise OnlyError(
            f"{path} cannot be imported: {answer['error']}\n{answer['traceback']}".rstrip()
        )
    return [Marked(**fields) for fields in answer["marked"]]


def _ask(path: str, timeout_s: float) -> tuple[int, str, str]:
    process = subprocess.Popen(
        shared_command(f"{__name__}:main", path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # what the file starts goes with it
    )
    with process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise OnlyError(
                f"{path} was not imported within {timeout_s:g} s; does it compute something as "
                "it is imported? "
                'Put that under `if __name__ == "__main__":`'
            ) from None
        finally:
            signal_group(process.pid, signal.SIGKILL)
    return process.returncode, out, err


def _answer(path: str) -> dict[str, Any]:
    try:
        functions = marked_functions(import_file(path))
    except (Exception, SystemExit) as error:
        lines = traceback.format_exception(error)
        first = next(
            (number for number, line in enumerate(lines) if path in line), len(lines)
        )  # before it is ours
        return {
            "error": traceback.format_exception_only(error)[-1].strip(),
            "traceback": "".join(lines[first:]),
        }
    return {
        "marked": [
            asdict(Marked(name, words["batch_size"], words["trains"]))
            for name, _, words in functions
        ]
    }


def main(path: str) -> None:
    channel = os.dup(1)
    os.dup2(2, 1)
    line = json.dumps(_answer(path)) + "\n"
    with open(channel, "w", encoding="utf-8") as out:
        out.write(line)


# With one of these a module may have names that its text does not show; then building it says what
# is missing.
HIDING = frozenset(
    ("*", "exec", "globals", "locals", "vars", "setattr", "modules", "__dict__", "__getattr__")
)


def check_class(path: str, name: str) -> None:
    """Raises OnlyError if the file is not Python or lacks the name, OSError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an odd escape: those are the file's own matter
            tree = ast.parse(Path(path).read_bytes(), path)
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        message = error.msg if isinstance(error, SyntaxError) else error
        raise OnlyError(
            f"{path} cannot be imported: {type(error).__name__}{line}: {message}"
        ) from None
    except (RecursionError, MemoryError):
        return
    names = frozenset(_names(tree))
    if name not in names and not names & HIDING:
        classes = [statement.name for statement in tree.body if isinstance(statement, ast.ClassDef)]
        raise OnlyError(
            f"{path} has no class {name!r}; its classes are {', '.join(classes) or 'none'}"
        )


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def import_file(path: str) -> ModuleType:
    folder, name = str(Path(path).parent), f"local_{Path(path).stem}"
    spec = spec_from_file_location(name, path, loader=SourceFileLoader(name, path))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported as a module")
    module = module_from_spec(spec)
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up there
    spec.loader.exec_module(module)
    return module


def marked_functions(module: ModuleType) -> list[tuple[str, Callable[..., Any], dict[str, Any]]]:
    functions: dict[str, tuple[Any, dict[str, Any]]] = {}
    for value in vars(module).values():
        # Statically: asking some objects for an attribute makes it.
        words = inspect.getattr_static(value, MARK, None) if callable(value) else None
        if not isinstance(words, dict):
            continue
        name = words["name"]
        if name in functions and functions[name][0] is not value:
            raise ValueError(
                f"two functions are marked as {name!r}; give one another name: @model(name=...)"
            )
        functions[name] = value, words
    return [(name, function, words) for name, (function, words) in functions.items()]


BUILD = "compileboard.collectors.bench.suites.user_build:build"
FORMS = "path:FILE.py,class:Name or path:FILE.py,model:Name or path:FILE.py"
# The last ",class:" counts, so that a path may have commas and colons; a name has neither, nor a
# slash.
PATH_FIRST = re.compile(
    r"path:(?P<path>.*?)(?:,(?P<kind>class|model):(?P<name>[^,:/]*))?", re.DOTALL
)
PATH_LAST = re.compile(r"(?P<kind>class|model):(?P<name>[^,:/]*),path:(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True)
class OnlyTarget:
    path: str
    kind: str | None = None
    name: str = ""

    @property
    def text(self) -> str:
        return f"path:{self.path}" + (f",{self.kind}:{self.name}" if self.kind else "")


def read_only(text: str) -> OnlyTarget:
    match = PATH_LAST.fullmatch(text) or PATH_FIRST.fullmatch(text)
    if match is None:
        raise OnlyError(f"--only {text}: there is no file in it; expected {FORMS}")
    path, kind, name = match["path"], match["kind"], match["name"] or ""
    if not path:
        raise OnlyError(f"--only {text}: the path is empty; expected {FORMS}")
    if kind == "class" and not name.isidentifier():
        raise OnlyError(f"--only {text}: {name!r} is no name of a class; expected {FORMS}")
    if kind == "model" and not name:
        raise OnlyError(f"--only {text}: the model has no name; expected {FORMS}")
    return OnlyTarget(
        os.path.join(os.getcwd(), path), kind, name
    )  # a child may have another folder


def parse_only(
    text: str, suite: str | None = None, *, timeout_s: float = LIST_TIMEOUT_S
) -> list[ModelRef]:
    """Return the models of `--only path:…`; without a name, the file is imported once in a child to
    list them.

    Raises OnlyError for what cannot be parsed, found or imported.
    """
    target = read_only(text)
    _check_file(target, text)
    if target.kind == "class":
        check_class(target.path, target.name)
        return [ModelRef(suite or LOCAL, target.name, BUILD, target.text, "local")]
    marked = list_marked(target.path, timeout_s)
    if not marked:
        raise OnlyError(
            f"{target.path} marks no function with @compileboard.bench.model; mark one, or "
            "name a class: "
            f"--only path:{target.path},class:Name"
        )
    if target.kind == "model":
        marked = [ref for ref in marked if ref.name == target.name] or _no_such(target, marked)
    return [_refer(target.path, ref, suite or LOCAL) for ref in marked]


def _check_file(target: OnlyTarget, text: str) -> None:
    path = Path(target.path)
    try:
        if path.is_file():
            return
        problem = "is a folder" if path.is_dir() else "does not exist"
    except (OSError, ValueError) as error:  # no permission; a null byte
        problem = f"cannot be read ({error})"
    if target.kind is None and re.search(r",\w+:", target.path):
        raise OnlyError(f"--only {text}: cannot be read; expected {FORMS}")
    raise OnlyError(f"--only {text}: {target.path} {problem}; expected a Python file")


def _no_such(target: OnlyTarget, marked: list[Marked]) -> list[Marked]:
    names = ", ".join(ref.name for ref in marked)
    raise OnlyError(f"{target.path} has no function marked as {target.name!r}; there are {names}")


def _refer(path: str, marked: Marked, suite: str) -> ModelRef:
    argument = OnlyTarget(path, "model", marked.name).text
    return ModelRef(
        suite,
        marked.name,
        BUILD,
        argument,
        "local",
        batch_size=marked.batch_size,
        trains=marked.trains,
    )
