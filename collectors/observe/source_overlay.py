"""Serve patched source to this interpreter without changing the files on disk.

Imports, `python script.py`, `-m`, `runpy` and spawned children read the patched text. Paths and
loaders stay those of the file, and `linecache` has the patched lines, so that tracebacks, `inspect`
and torch see the source as if the file had been edited.
"""

from __future__ import annotations

import atexit
import functools
import io
import linecache
import os
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any

from .program_room import end_by_sigint, end_program

Note = Callable[[str], None]


class SourceOverlay:
    def __init__(self, files: Mapping[str, str], note: Note) -> None:
        self._copies = dict(files)
        self._names = {os.path.basename(path) for path in files}
        self._note = note
        self._loaded: set[str] = set()

    def find(self, path: Any) -> str | None:
        try:
            text = os.fspath(path)
            if os.path.basename(text) not in self._names:
                return None
            return self._copies.get(os.path.realpath(text))
        except (TypeError, ValueError, OSError):
            return None

    def note_loaded(self, path: Any) -> None:
        real = os.path.realpath(path)
        if real not in self._loaded:
            self._loaded.add(real)
            self._note(real)

    def read(self, copy: str) -> bytes:
        with io.FileIO(copy) as file:
            return file.readall()


def install_overlay(files: Mapping[str, str], note: Note) -> None:
    overlay = SourceOverlay(files, note)
    _replace_open_code(overlay)
    _replace_path_stats(overlay)
    _replace_lines(overlay)
    sys.excepthook = _print_exception
    atexit.register(end_by_sigint)
    sys.addaudithook(_make_main_hook(overlay))


def _replace_open_code(overlay: SourceOverlay) -> None:
    """Make `io.open_code`, which importlib, runpy, cProfile and pdb use, open the patched
    copies.
    """
    import _io

    original = io.open_code

    @functools.wraps(original)
    def open_code(path: str) -> Any:
        copy = overlay.find(path)
        if copy is None:
            return original(path)
        opened = original(copy)
        overlay.note_loaded(path)
        return opened

    _io.open_code = io.open_code = open_code


def _replace_path_stats(overlay: SourceOverlay) -> None:
    """Keep importlib from reading or writing cached bytecode for a patched source."""
    original = SourceFileLoader.path_stats

    @functools.wraps(original)
    def path_stats(self: SourceFileLoader, path: Any) -> Any:
        if overlay.find(path) is not None:
            raise OSError("patched source: no compiled file is used")
        return original(self, path)

    SourceFileLoader.path_stats = path_stats  # type: ignore[method-assign]


def _replace_lines(overlay: SourceOverlay) -> None:
    original = linecache.updatecache

    @functools.wraps(original)
    def updatecache(filename: str, module_globals: Any = None) -> list[str]:
        copy = overlay.find(filename)
        if copy is None:
            return original(filename, module_globals)
        lines = original(copy)
        linecache.cache.pop(copy, None)
        # Without a time of change: checkcache() then leaves it alone.
        linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)
        return lines

    linecache.updatecache = updatecache


def _print_exception(kind: Any, error: BaseException, trace: Any) -> None:
    """Print the exception with linecache's lines, because the interpreter's own printer reads the
    files.
    """
    try:
        import traceback

        traceback.print_exception(kind, error, trace)
    except Exception:
        sys.__excepthook__(kind, error, trace)


def _make_main_hook(overlay: SourceOverlay) -> Any:
    """Return an audit hook that runs the patched `__main__` in place of the file's.

    C code reads that file, so its text cannot be replaced. It announces the code before running it:
    the hook runs the patched code instead and exits as the C code would.
    """
    waiting, main_file = True, None

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal waiting, main_file
        if not waiting:
            return
        if event == "cpython.run_file":
            main_file = arguments[0]
        elif event in ("cpython.run_module", "cpython.run_command", "cpython.run_stdin"):
            waiting = False
        elif event == "exec" and main_file is not None and _is_main(arguments[0], main_file):
            waiting = hook.__cantrace__ = False  # type: ignore[attr-defined]
            copy = overlay.find(main_file)
            if copy is not None:
                overlay.note_loaded(main_file)
                _run_main(overlay.read(copy), arguments[0])

    hook.__cantrace__ = True  # type: ignore[attr-defined]  # debuggers and coverage see what it runs
    return hook


def _is_main(code: object, main_file: str) -> bool:
    return (
        isinstance(code, CodeType) and code.co_filename == main_file and code.co_name == "<module>"
    )


def _run_main(source: bytes, original: CodeType) -> None:
    """Run the patched program. Always raises SystemExit, which ends the C code that announced the
    program.
    """
    failure = None
    try:
        code = compile(source, original.co_filename, "exec", dont_inherit=True)
        exec(code, sys.modules["__main__"].__dict__)  # noqa: S102  the program
    except SystemExit:
        raise
    except BaseException as error:
        failure = error
    end_program(failure)
