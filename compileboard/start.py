"""Start our own processes by path, so that they use this copy of the package."""

from __future__ import annotations

import os
import sys

PACKAGE = os.path.dirname(os.path.abspath(__file__))
# For `python -c`, in a process that imports the user's code from its own folder.
SHARED = """import importlib, importlib.util, sys
spec = importlib.util.spec_from_file_location("compileboard", sys.argv.pop(1))
package = sys.modules["compileboard"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
module, _, function = sys.argv.pop(1).partition(":")
getattr(importlib.import_module(module), function)(*sys.argv[1:])"""


def own_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs one of our modules: `compileboard.collectors`."""
    return [sys.executable, os.path.join(PACKAGE, "start.py"), module, *arguments]


def shared_command(function: str, *arguments: str) -> list[str]:
    """Return the command that calls our `module:function` in a process that also imports the user's
    code.
    """
    return [
        sys.executable,
        "-c",
        SHARED,
        os.path.join(PACKAGE, "__init__.py"),
        function,
        *arguments,
    ]


def _main() -> None:
    import runpy
    from importlib.util import module_from_spec, spec_from_file_location

    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # this folder: `app` and `collectors` have another name here
    spec = spec_from_file_location("compileboard", os.path.join(PACKAGE, "__init__.py"))
    assert spec is not None and spec.loader is not None
    package = sys.modules["compileboard"] = module_from_spec(spec)
    spec.loader.exec_module(package)
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
