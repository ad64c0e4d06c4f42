"""Our own commands as the user can type them."""

from __future__ import annotations

import os
import shlex
import shutil
import sys

from compileboard.collectors.store.sealed.address import find_address

DEFAULT_DATABASE = "compileboard.db"
PACKAGES = {"compileboard-collect": "collectors", "compileboard": "app"}


def collector_command(*words: str, database: str = DEFAULT_DATABASE, then: str = "") -> str:
    return _write("compileboard-collect", words, database, then)


def dashboard_command(*words: str, database: str = DEFAULT_DATABASE) -> str:
    return _write("compileboard", words, database, "")


def _write(script: str, words: tuple[str, ...], database: str, then: str) -> str:
    parts = [_program(script), *map(shlex.quote, words)]
    if database != DEFAULT_DATABASE:
        parts += ["--db", shlex.quote(find_address(database))]
    return " ".join([*parts, then] if then else parts)


def _program(script: str) -> str:
    invoked = sys.argv[0] if sys.argv else ""
    if os.path.basename(invoked) == "__main__.py":
        original = getattr(sys, "orig_argv", None) or ["python"]
        in_clone = any(package in original for package in PACKAGES.values())
        return (
            f"{shlex.quote(original[0])} -m {'' if in_clone else 'compileboard.'}{PACKAGES[script]}"
        )
    if os.path.basename(invoked) in PACKAGES:
        folder = os.path.dirname(
            invoked
        )  # typed with its path, it is not on PATH, nor is the other one
        return (
            shlex.quote(os.path.join(folder, script))
            if folder and not shutil.which(script)
            else script
        )
    return script if shutil.which(script) else f"python -m compileboard.{PACKAGES[script]}"
