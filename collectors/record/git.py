"""Ask git about another folder's repository, whatever repository or index our own environment names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

GIT_TIMEOUT_S = 300.0
# What git sets in its own hooks; inherited, it would name another repository or index.
OF_GIT = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")


def ask_git(
    words: list[str], folder: str, *, timeout_s: float = GIT_TIMEOUT_S, also: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Ask git, in a session of its own: a Ctrl-C is ours, and must not stop it from removing what it made.

    The person's hooks are not run: a post-checkout hook does things to their checkout.

    Raises: OSError if there is no git or no such folder; subprocess.TimeoutExpired.
    """
    environment = {name: value for name, value in os.environ.items() if name not in OF_GIT}
    return subprocess.run(
        ["git", "-c", "core.hooksPath=/dev/null", *words],
        cwd=folder,
        env={**environment, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", **(also or {})},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )
