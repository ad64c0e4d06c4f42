"""Install CompileBoard's hooks in a Python process started under `collectors run`.

This folder is first on PYTHONPATH and holds only this file. It imports nothing that the interpreter
has not already loaded, never imports torch, removes its folder from sys.path and then runs the
sitecustomize that it shadows.
"""

import os
import sys

_HERE = os.path.dirname(__file__)  # The entry on sys.path; the current folder may be gone.


class _Finder:
    def __init__(self, name, after):
        self._name = name
        self.after = after

    def find_spec(self, name, path=None, target=None):
        if name != self._name:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None


class _Loader:
    def __init__(self, loader, finder):
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            sys.meta_path.remove(self._finder)
        except ValueError:
            pass
        self._finder.after()


def _load(module):
    """Load a module of `collectors` by path, under a name that no program uses."""
    import importlib.util

    name = "_compileboard"
    if name not in sys.modules:
        root = os.path.dirname(os.path.dirname(_HERE))
        spec = importlib.util.spec_from_file_location(
            name, os.path.join(root, "__init__.py"), submodule_search_locations=[root]
        )
        package = importlib.util.module_from_spec(spec)
        sys.modules[name] = package
        spec.loader.exec_module(package)
    return importlib.import_module(name + module)


def _install():
    try:
        _load(".observe.hooks").install_from_environment()
    except Exception as error:  # the observed program never notices us
        _report_error("cannot observe this process", error)
    if os.environ.get("COMPILEBOARD_STACK_ROOM"):
        try:
            _load(".stack_room").widen_backward()
        except Exception as error:
            _report_error("cannot give autograd's threads room on their frame stacks", error)


def _widen_program():
    try:
        _load(".observe.program_room").widen_program()
    except Exception as error:
        _report_error("cannot give this process room on its frame stack", error)


def _start_trial():
    try:
        steps = _load(".observe.applied_trial").start_trial()
    except Exception as error:
        _report_error("cannot try a fix in this process", error)
        return
    for name, step in steps.items():
        after = _guard(step)
        if name in sys.modules:
            after()
        else:
            sys.meta_path.insert(0, _Finder(name, after))


def _guard(step):
    def after():
        try:
            step()
        except Exception as error:
            _report_error("cannot try a fix in this process", error)

    return after


def _report_error(problem, error):
    if os.environ.get("COMPILEBOARD_DEBUG"):
        sys.stderr.write("compileboard: %s: %r\n" % (problem, error))


def _chain():
    """Run the sitecustomize that this one shadows.

    If there is none, raise ImportError as Python expects, and leave nothing in sys.modules.
    """
    sys.path[:] = [entry for entry in sys.path if entry != _HERE]
    sys.path_importer_cache.pop(_HERE, None)
    sys.modules.pop("sitecustomize", None)
    import sitecustomize  # noqa: F401


if os.environ.get("COMPILEBOARD_SPOOL") and sys.version_info >= (3, 10):
    if "torch._dynamo" in sys.modules:
        _install()
    else:
        sys.meta_path.insert(0, _Finder("torch._dynamo", _install))
    if os.environ.get(
        "COMPILEBOARD_TRIAL"
    ):  # after the hooks: settings of a trial may import torch._dynamo
        _start_trial()
    if os.environ.get("COMPILEBOARD_STACK_ROOM"):
        _widen_program()
_chain()
