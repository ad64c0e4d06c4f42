"""Where a check writes: looked at before anything is compared, and files before stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

from compileboard.app.checks.tables import CannotCompare
from compileboard.app.reports.output import write_file

STDOUT = "-"


def check_targets(targets: Mapping[str, str | None]) -> None:
    """Look whether every target, by its flag, can be written; None is one that nobody asked for.

    Raises: CannotCompare if one cannot, or two are the same.
    """
    known: dict[str, str] = {}
    for flag, target in targets.items():
        if target is None:
            continue
        path = target if target == STDOUT else os.path.realpath(target)
        if path in known:
            where = "stdout" if path == STDOUT else target
            raise CannotCompare(f"{known[path]} and {flag} both go to {where}; give one of them another file")
        known[path] = flag
        if path != STDOUT and (problem := _find_problem(path)):
            raise CannotCompare(f"{flag}: cannot write {target}: {problem}")


def _find_problem(path: str) -> str:
    folder = os.path.dirname(path)
    if os.path.isdir(path):
        return "it is a folder; give a file's name"
    if not os.path.isdir(folder):
        return f"there is no folder {folder}"
    if not os.access(folder, os.W_OK | os.X_OK) or (os.path.exists(path) and not os.access(path, os.W_OK)):
        return "permission denied"
    return ""


def write_outputs(documents: Iterable[tuple[str | None, bytes]], table: Iterable[str]) -> None:
    """Write every document where it goes; the table goes to stdout where no document does.

    Raises: OSError if a file or stdout cannot be written; a reader of stdout that has read enough is no error.
    """
    text = None
    for target, body in documents:
        if target == STDOUT:
            text = body.decode()
        elif target:
            write_file(target, [body])
    try:
        if text is None:
            sys.stdout.writelines(f"{line}\n" for line in table)
        else:
            sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
