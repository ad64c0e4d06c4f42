"""Models in a user's file: its marked functions are listed in a child process, its classes
selected.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from compileboard.collectors.bench import MARK, MarkedModel
from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.suites import LOCAL
from compileboard.collectors.record.program import signal_group
from compileboard.start import shared_command

LIST_TIMEOUT_S = 120.0
TAIL_LINES = 12  # Lines of output shown for a child that died.


class OnlyError(ValueError):
    """`--only` selects no model."""


def list_marked(path: str, class_name: str) -> list[MarkedModel]:
    """Import a file in a child process and return its marked functions. With `class_name`, only
    check that the class exists, and return none. Raises OnlyError if the file cannot be imported or
    has no such model.
    """
    code, out, err = _ask(path, class_name)
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
    if "refused" in answer:
        raise OnlyError(answer["refused"])
    if "error" in answer:
        raise OnlyError(
            f"{path} cannot be imported: {answer['error']}\n{answer['traceback']}".rstrip()
        )
    return [MarkedModel(**fields) for fields in answer["marked"]]


def _ask(path: str, class_name: str) -> tuple[int, str, str]:
    process = subprocess.Popen(
        shared_command(f"{__name__}:main", path, class_name),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # also ends what the file starts
    )
    with process:
        try:
            out, err = process.communicate(timeout=LIST_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise OnlyError(
                f"{path} was not imported within {LIST_TIMEOUT_S:g} s; does it compute something "
                'as it is imported? Put that under `if __name__ == "__main__":`'
            ) from None
        finally:
            signal_group(process.pid, signal.SIGKILL)
    return process.returncode, out, err


def _answer(path: str, class_name: str) -> dict[str, Any]:
    try:
        module = import_file(path)
        if class_name:
            find_class(module, path, class_name)
            return {"marked": []}
        return {"marked": [asdict(marked) for marked, _ in marked_functions(module)]}
    except OnlyError as error:
        return {"refused": str(error)}
    except (Exception, SystemExit) as error:
        lines = traceback.format_exception(error)
        first = next(
            (number for number, line in enumerate(lines) if path in line), len(lines)
        )  # before it becomes ours
        return {
            "error": traceback.format_exception_only(error)[-1].strip(),
            "traceback": "".join(lines[first:]),
        }


def main(path: str, class_name: str) -> None:
    channel = os.dup(1)
    os.dup2(2, 1)
    line = json.dumps(_answer(path, class_name)) + "\n"
    with open(channel, "w", encoding="utf-8") as out:
        out.write(line)


def find_class(module: ModuleType, path: str, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        classes = [
            value.__name__
            for value in vars(module).values()
            if isinstance(value, type) and value.__module__ == module.__name__
        ]
        raise OnlyError(
            f"{path} has no class {name!r}; its classes are {', '.join(classes) or 'none'}"
        ) from None


def import_file(path: str) -> ModuleType:
    folder, name = str(Path(path).parent), f"local_{Path(path).stem}"
    spec = spec_from_file_location(name, path, loader=SourceFileLoader(name, path))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported as a module")
    module = module_from_spec(spec)
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up here
    spec.loader.exec_module(module)
    return module


def marked_functions(module: ModuleType) -> list[tuple[MarkedModel, Callable[..., Any]]]:
    functions: dict[str, tuple[MarkedModel, Any]] = {}
    for value in vars(module).values():
        # Statically: getting an attribute may create it.
        marked = inspect.getattr_static(value, MARK, None) if callable(value) else None
        if not isinstance(marked, MarkedModel):
            continue
        _, known = functions.setdefault(marked.name, (marked, value))
        if known is not value:
            raise ValueError(
                f"two functions are marked as {marked.name!r}; give one another name: "
                "@model(name=...)"
            )
    return list(functions.values())


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
        raise OnlyError(f"--only {text}: {name!r} is not the name of a class; expected {FORMS}")
    if kind == "model" and not name:
        raise OnlyError(f"--only {text}: the model has no name; expected {FORMS}")
    return OnlyTarget(
        os.path.join(os.getcwd(), path), kind, name
    )  # a child may have another working folder


def parse_only(text: str, suite: str | None = None) -> list[ModelRef]:
    """Return the models of `--only path:…`. The file is imported once in a child process to find
    them.

    Raises OnlyError if a part cannot be parsed, found or imported.
    """
    target = read_only(text)
    _check_file(target, text)
    marked = list_marked(target.path, target.name if target.kind == "class" else "")
    if target.kind == "class":
        return [ModelRef(suite or LOCAL, target.name, BUILD, target.text, "local")]
    if not marked:
        raise OnlyError(
            f"{target.path} marks no function with @compileboard.bench.model; mark one, or "
            "name a class: "
            f"--only path:{target.path},class:Name"
        )
    chosen = [one for one in marked if target.kind is None or one.name == target.name]
    if not chosen:
        names = ", ".join(one.name for one in marked)
        raise OnlyError(
            f"{target.path} has no function marked as {target.name!r}; there are {names}"
        )
    return [
        ModelRef(
            suite or LOCAL,
            one.name,
            BUILD,
            OnlyTarget(target.path, "model", one.name).text,
            "local",
            batch_size=one.batch_size,
            trains=one.trains,
        )
        for one in chosen
    ]


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
