"""Import code that registers a repro's operations, lowerings, settings and backend, before its
graph.

File names are relative to the root of their repository, or to the folder of their run.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from compileboard.collectors.observe.repro.preload import relative_path
from compileboard.collectors.observe.torch_compat import CONFIG_MODULES
from compileboard.collectors.repro.repro import NotRunnable, Repro, work_folder
from compileboard.collectors.terminal.values import first_line

_REMEMBERED = "preload.json"
_BELOW_MAIN = "; what registers nothing belongs below `if __name__ == '__main__':`"


def list_preload(recorded: Sequence[str], given: Sequence[str]) -> list[str]:
    given_files = {_file_name(name) for name in given} - {""}
    return [*given, *(name for name in recorded if _file_name(name) not in given_files)]


def _file_name(name: str) -> str:
    file = name.partition(":")[0]
    return os.path.basename(file) if file.endswith(".py") else ""


def relative_name(name: str) -> str:
    """Return a file's name relative to its repository or the current folder, as in recordings."""
    file, colon, function = name.partition(":")
    return f"{relative_path(file)}{colon}{function}" if file.endswith(".py") else name


def absolute_name(name: str) -> str:
    file, colon, function = name.partition(":")
    return f"{os.path.abspath(file)}{colon}{function}" if os.path.isfile(file) else name


def remember_preload(repro: Repro, given: Sequence[str], environment: Mapping[str, str]) -> None:
    """Store the preloaded files of this program, for later commands from any folder."""
    body = {"folder": os.getcwd(), "preload": given}
    (work_folder(repro, environment) / _REMEMBERED).write_text(json.dumps(body), encoding="utf-8")


def recall_preload(repro: Repro, environment: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the files that an earlier command preloaded, and the folder in which it ran."""
    with suppress(OSError, ValueError, KeyError):
        body = json.loads((work_folder(repro, environment) / _REMEMBERED).read_text("utf-8"))
        return list(map(str, body["preload"])), [str(body["folder"])]
    return [], []


def preload_modules(
    names: Sequence[str],
    folders: Sequence[str],
    backend: str | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Import modules or files, and call the functions given after a colon. If none registers the
    backend, register one that they define.

    Compilation is disabled during the imports, because a script that runs its work on import would
    fail again. Raises NotRunnable if one of them fails.
    """
    dynamo = import_module("torch._dynamo")
    modules: dict[str, Any] = {}  # a file named twice is run once
    made: list[Any] = []
    for name in dict.fromkeys(names):
        report(name)
        source, _, function = name.partition(":")
        try:
            key = str(_find_file(source, folders)) if source.endswith(".py") else source
            if key not in modules:
                with dynamo.config.patch(disable=True):
                    modules[key] = _load_file(key) if key.endswith(".py") else import_module(key)
            if function and function != backend:
                made.append(getattr(modules[key], function)())
        except ModuleNotFoundError as error:
            raise NotRunnable(f"cannot preload {name}: {describe_absent(error)}") from None
        except NotRunnable:
            raise
        except (Exception, SystemExit) as error:
            raise NotRunnable(
                f"cannot preload {name}: {describe_raised(error)}{advise_script(source)}"
            ) from None
    if backend is not None:
        _register_backend(backend, [*made, *_list_attributes(modules.values(), backend)])


def _list_attributes(modules: Iterable[Any], name: str) -> list[Any]:
    return [
        value
        for module in modules
        for key, value in vars(module).items()
        if name in (key, type(value).__name__) and not isinstance(value, type)
    ]


def _register_backend(name: str, candidates: Sequence[Any]) -> None:
    function = next((value for value in candidates if callable(value)), None)
    if function is None:
        return
    registry = import_module("torch._dynamo.backends.registry")
    if name not in registry.list_backends(exclude_tags=()):
        registry.register_backend(function, name)


def advise_script(name: str) -> str:
    return _BELOW_MAIN if name.endswith(".py") else ""


def _find_file(name: str, folders: Sequence[str]) -> Path:
    for folder in map(Path, folders):
        steps = (folder, *folder.parents)
        roots = [step for step in steps if (step / ".git").exists()][:1]
        for place in (folder, *roots):
            if (place / name).is_file():
                return (place / name).resolve()
    where = " or ".join(dict.fromkeys(folders))
    raise NotRunnable(
        f"cannot preload {name}: there is no such file in {where}; give its place with --preload"
    )


def _load_file(name: str) -> Any:
    from importlib.util import module_from_spec, spec_from_file_location

    path = Path(name)
    sys.path.insert(1, str(path.parent))
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def list_unset_settings(repro: Repro) -> Iterator[str]:
    """Yield the recorded settings whose value was an object and that no preloaded code has set."""
    for part, values in repro.manifest.settings.items():
        for name, text in values.items():
            if (
                part not in CONFIG_MODULES
                or _is_literal(str(text))
                or f".{name} = " in repro.program
            ):
                continue
            target: Any = import_module(CONFIG_MODULES[part])
            try:
                value = attrgetter(name)(target)
            except AttributeError:
                continue
            if _is_literal(repr(value)):
                yield f"{part}.{name}"


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return True


def describe_raised(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(str(error), 300)}".removesuffix(": ")


def describe_absent(error: ModuleNotFoundError) -> str:
    return (
        f"this repro needs {error.name}, which is not installed here; install it, or name its "
        "file with --preload"
    )
