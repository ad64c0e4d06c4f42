"""Import a person's file and find what it marks. Child processes only: importing runs what the file says."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from compileboard.collectors.bench import MARK


def import_file(path: str) -> ModuleType:
    """Import a file as a module of its own, with its folder first on sys.path as a script has it.

    Raises: whatever the file raises; ImportError if it cannot be one.
    """
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
    """Return name, function and words of everything marked in a module, in its order.

    Raises: ValueError if two have one name.
    """
    found: dict[str, tuple[Any, dict[str, Any]]] = {}
    for value in vars(module).values():
        # Statically: asking some objects for an attribute makes it.
        words = inspect.getattr_static(value, MARK, None) if callable(value) else None
        if not isinstance(words, dict):
            continue
        name = words["name"]
        if name in found and found[name][0] is not value:
            raise ValueError(f"two functions are marked as {name!r}; give one another name: @model(name=...)")
        found[name] = value, words
    return [(name, function, words) for name, (function, words) in found.items()]
