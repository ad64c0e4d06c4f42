"""Record what torch.compile does in this process, whatever the packages of your project are called.

import compileboard
with compileboard.observe(name="my model") as run:
    ...

Ours are called `app` and `collectors`, and a project may have its own of these names. Commands of ours get ours by
their path. In a process that is the person's, theirs keep their names, and ours are loaded under another one.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from types import CodeType, ModuleType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
OURS = ("app", "collectors")
SHARED, PRIVATE = "collectors", "_compileboard"


def __getattr__(name: str) -> Any:
    if name == "plugin":  # pytest's, which loads it before the tests' folders are on the path
        if not _has_ours():
            _claim_privately()
        return load("pytest_plugin")
    if name == "bench":  # a room of its own: @compileboard.bench.model
        return load(name)
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(importlib.import_module(_package()), name)


def _spec_of(name: str, package: str) -> ModuleSpec | None:
    folder = os.path.join(HERE, package)
    loader = SourceFileLoader(name, os.path.join(folder, "__init__.py"))
    return spec_from_file_location(name, loader.path, loader=loader, submodule_search_locations=[folder])


class OwnFinder:
    """Find our packages where we are, before anything of their names on the path."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find `app` and `collectors`."""
        return _spec_of(name, name) if name in OURS else None


class PrivateFinder:
    """Find our modules under their private name."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find what is below the private package."""
        if not name.startswith(PRIVATE + ".") or not path:
            return None
        return FileFinder(next(iter(path)), (PrivateLoader, SOURCE_SUFFIXES)).find_spec(name)


class PrivateLoader(SourceFileLoader):
    """Load a module of ours whose imports name our packages by the private name."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source anew: what is cached of it names the packages as they are called otherwise."""
        tree = ast.parse(self.get_data(self.path), self.path)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                node.module = _private(node.module)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    alias.asname = alias.asname or (alias.name if alias.name == SHARED else None)
                    alias.name = _private(alias.name)
        return compile(tree, self.path, "exec", dont_inherit=True)


def _private(name: str) -> str:
    return PRIVATE + name[len(SHARED) :] if name.partition(".")[0] == SHARED else name


def _package(folder: str | None = None) -> str:
    """Return what our package is called in this process: `collectors`, unless the person has one of that name.

    `folder` is one that the person's code is yet to be imported from.
    """
    if PrivateFinder in sys.meta_path:
        return PRIVATE
    loaded = sys.modules.get(SHARED)
    if loaded is not None and folder is None:
        spec = loaded.__spec__
    else:
        spec = PathFinder.find_spec(SHARED, [*filter(None, [folder]), *sys.path])
    if spec is not None and not _is_ours(spec):
        _claim_privately()
        return PRIVATE
    if spec is None and OwnFinder not in sys.meta_path:  # not installed
        sys.meta_path.append(OwnFinder)
    return SHARED


def _has_ours() -> bool:
    spec = getattr(sys.modules.get(SHARED), "__spec__", None)
    return spec is not None and _is_ours(spec)


def _is_ours(spec: ModuleSpec) -> bool:
    places = spec.submodule_search_locations or ()
    return os.path.join(HERE, SHARED) in map(os.path.realpath, places) or os.path.join(HERE, SHARED) in places


def _claim_privately() -> None:
    if PrivateFinder not in sys.meta_path:
        sys.meta_path.insert(0, PrivateFinder)
    if PRIVATE not in sys.modules:  # else the hooks are here already
        spec = _spec_of(PRIVATE, SHARED)
        assert spec is not None and spec.loader is not None
        package = sys.modules[PRIVATE] = module_from_spec(spec)
        spec.loader.exec_module(package)


def load(name: str, folder: str | None = None) -> ModuleType:
    """Import a module of `collectors` into a process that is the person's."""
    return importlib.import_module(f"{_package(folder)}.{name}")


def collect() -> int:
    """Run the collector's command line."""
    return int(_main("collectors.cli"))


def dashboard() -> int:
    """Run the dashboard's command line."""
    return int(_main("app.cli"))


def _main(name: str) -> Any:
    sys.meta_path.insert(0, OwnFinder)
    return importlib.import_module(name).main()


def _run_as_script() -> None:
    """Run a module of ours in a process of our own: `python compileboard.py MODULE [ARGUMENT ...]`."""
    import runpy

    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # our folder: what lies beside us is no part of Python
    sys.meta_path.insert(0, OwnFinder)
    name = sys.argv.pop(1)
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run_as_script()
