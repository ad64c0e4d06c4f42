"""Serve patched texts to this interpreter for some source files; on the disk they stay as they are.

Imports, `python script.py`, `-m`, `runpy` and spawned children read the patched text. `__file__`, `co_filename` and
loaders are those of the file itself, and `linecache` has the patched lines, so that tracebacks, `inspect` and torch's
own tracing see what a person would see who had edited the file.
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
    """Patched texts by the real paths of their files; `note` hears of each file that was loaded patched, once."""

    def __init__(self, files: Mapping[str, str], note: Note) -> None:
        self._copies = dict(files)
        self._names = {os.path.basename(path) for path in files}
        self._note = note
        self._loaded: set[str] = set()

    def find(self, path: Any) -> str | None:
        """Return the patched copy of a file, None where it has none."""
        try:
            text = os.fspath(path)
            if os.path.basename(text) not in self._names:
                return None
            return self._copies.get(os.path.realpath(text))
        except (TypeError, ValueError, OSError):
            return None

    def note_loaded(self, path: Any) -> None:
        """Write down that a file was loaded patched."""
        real = os.path.realpath(path)
        if real not in self._loaded:
            self._loaded.add(real)
            self._note(real)

    def read(self, copy: str) -> bytes:
        """Read a patched copy."""
        with io.FileIO(copy) as file:
            return file.readall()


def install_overlay(files: Mapping[str, str], note: Note) -> None:
    """Make this interpreter read the patched copies from now on, `__main__` included."""
    overlay = SourceOverlay(files, note)
    _replace_open_code(overlay)
    _replace_path_stats(overlay)
    _replace_lines(overlay)
    sys.excepthook = _print_exception
    atexit.register(end_by_sigint)
    sys.addaudithook(_make_main_hook(overlay))


def _replace_open_code(overlay: SourceOverlay) -> None:
    """Importlib, runpy, cProfile and pdb open source files by this function."""
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
    """Stop importlib from reading, and writing, a compiled file beside a source that is patched."""
    original = SourceFileLoader.path_stats

    @functools.wraps(original)
    def path_stats(self: SourceFileLoader, path: Any) -> Any:
        if overlay.find(path) is not None:
            raise OSError("patched source: no compiled file is used")
        return original(self, path)

    SourceFileLoader.path_stats = path_stats  # type: ignore[method-assign]


def _replace_lines(overlay: SourceOverlay) -> None:
    """Make linecache hold the patched lines, whatever is on the disk."""
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
    """Print what ended the program with the lines that linecache has; the interpreter's own way reads the files."""
    try:
        import traceback

        traceback.print_exception(kind, error, trace)
    except Exception:
        sys.__excepthook__(kind, error, trace)


def _make_main_hook(overlay: SourceOverlay) -> Any:
    """Return an audit hook that runs the patched text where the interpreter would run `__main__` from its file.

    C code reads that file, so nothing can give it another text. It announces the code just before it runs it: the hook
    runs the patched one in its place and ends as C would have.
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
    return isinstance(code, CodeType) and code.co_filename == main_file and code.co_name == "<module>"


def _run_main(source: bytes, original: CodeType) -> None:
    """Raises: SystemExit, always: for the C code that announced the program, that is its end."""
    failure = None
    try:
        code = compile(source, original.co_filename, "exec", dont_inherit=True)
        exec(code, sys.modules["__main__"].__dict__)  # noqa: S102  the program
    except SystemExit:
        raise
    except BaseException as error:
        failure = error
    end_program(failure)
