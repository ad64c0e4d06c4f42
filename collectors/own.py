"""Start processes of our own, and load modules of ours, whatever the person's packages are called."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

ENTRY = Path(__file__).resolve().parent.parent / "compileboard.py"
# For `python -c`, in a process that imports the person's code too.
SHARED = """import importlib.util, sys
spec = importlib.util.spec_from_file_location("compileboard", sys.argv.pop(1))
own = sys.modules["compileboard"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(own)
module, _, function = sys.argv.pop(1).partition(":")
getattr(own.load(module, sys.argv.pop(1) or None), function)(*sys.argv[1:])"""


def own_command(module: str, *words: str) -> list[str]:
    """Return the command that runs a module of ours, `collectors` or `app.follow`, in a process of its own."""
    return [sys.executable, str(ENTRY), module, *words]


def shared_words(place: str, *words: str, folder: str = "") -> list[str]:
    """Return what SHARED takes to call a function of ours, `bench.child:start`, with words.

    `folder` is where the person's code is, if not in the current folder.
    """
    return [str(ENTRY), place, folder, *words]


def import_own(name: str) -> ModuleType:
    """Import a module of `collectors` by its usual name, into the copy of the package that we are."""
    return importlib.import_module(__name__.partition(".")[0] + name.removeprefix("collectors"))
