"""A person's own models: what `--only path:…` names. Without torch: `user_build` builds them in a child."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from compileboard.collectors.bench.models import ModelRef
from compileboard.collectors.bench.suites import LOCAL
from compileboard.collectors.bench.suites.user_class import check_class
from compileboard.collectors.bench.suites.user_list import LIST_TIMEOUT_S, Marked, OnlyError, list_marked

BUILD = "compileboard.collectors.bench.suites.user_build:build"
FORMS = "path:/abs/file.py,class:Name or path:/abs/file.py,model:Name or path:/abs/file.py"
# The last ",class:" counts, so that a path may have commas and colons; a name has neither, nor a slash.
PATH_FIRST = re.compile(r"path:(?P<path>.*?)(?:,(?P<kind>class|model):(?P<name>[^,:/]*))?", re.DOTALL)
PATH_LAST = re.compile(r"(?P<kind>class|model):(?P<name>[^,:/]*),path:(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True)
class Asked:
    """Say what was asked for: a class, a marked function, or (kind is none) all marked functions of a file."""

    path: str
    kind: str | None = None
    name: str = ""

    @property
    def text(self) -> str:
        """Return it in the one form that `--only` and the child read."""
        return f"path:{self.path}" + (f",{self.kind}:{self.name}" if self.kind else "")


def read_only(text: str) -> Asked:
    """Read `path:…` without looking at the file.

    Raises: OnlyError.
    """
    match = PATH_LAST.fullmatch(text) or PATH_FIRST.fullmatch(text)
    if match is None:
        raise OnlyError(f"--only {text}: there is no file in it; expected {FORMS}")
    path, kind, name = match["path"], match["kind"], match["name"] or ""
    if not path:
        raise OnlyError(f"--only {text}: the path is empty; expected {FORMS}")
    if not path.startswith("/"):
        raise OnlyError(
            f"--only {text}: {path} is not an absolute path, and must be: dynamo may change the current working "
            "directory, which makes a relative one tricky"
        )
    if kind == "class" and not name.isidentifier():
        raise OnlyError(f"--only {text}: {name!r} is no name of a class; expected {FORMS}")
    if kind == "model" and not name:
        raise OnlyError(f"--only {text}: the model has no name; expected {FORMS}")
    return Asked(path, kind, name)


def parse_only(text: str, suite: str | None = None, *, timeout_s: float = LIST_TIMEOUT_S) -> list[ModelRef]:
    """Return the models that `--only path:…` asks for; a file without a name is imported once, in a child, to ask it.

    Units: timeout_s seconds.
    Raises: OnlyError in words for what cannot be read, found or imported.
    """
    asked = read_only(text)
    _check_file(asked, text)
    if asked.kind == "class":
        check_class(asked.path, asked.name)
        return [ModelRef(suite or LOCAL, asked.name, BUILD, asked.text, "local")]
    marked = list_marked(asked.path, timeout_s)
    if not marked:
        raise OnlyError(
            f"{asked.path} marks no function with @compileboard.bench.model; mark one, or name a class: "
            f"--only path:{asked.path},class:Name"
        )
    if asked.kind == "model":
        marked = [it for it in marked if it.name == asked.name] or _no_such(asked, marked)
    return [_refer(asked.path, it, suite or LOCAL) for it in marked]


def _check_file(asked: Asked, text: str) -> None:
    path = Path(asked.path)
    try:
        if path.is_file():
            return
        found = "is a folder" if path.is_dir() else "does not exist"
    except (OSError, ValueError) as error:  # no permission; a null byte
        found = f"cannot be read ({error})"
    if asked.kind is None and re.search(r",\w+:", asked.path):
        raise OnlyError(f"--only {text}: cannot be read; expected {FORMS}")
    raise OnlyError(f"--only {text}: {asked.path} {found}; expected a Python file")


def _no_such(asked: Asked, marked: list[Marked]) -> list[Marked]:
    names = ", ".join(it.name for it in marked)
    raise OnlyError(f"{asked.path} has no function marked as {asked.name!r}; there are {names}")


def _refer(path: str, marked: Marked, suite: str) -> ModelRef:
    argument = Asked(path, "model", marked.name).text
    return ModelRef(suite, marked.name, BUILD, argument, "local", batch_size=marked.batch_size, trains=marked.trains)
