"""Another commit of a repository in a throw-away worktree: the checkout, its index and its branch stay untouched."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from compileboard.collectors.record.git import ask_git


@dataclass(frozen=True)
class Commit:
    """Name a commit of the repository that a folder is in."""

    root: Path  # of the checkout
    ref: str  # as it was asked for
    sha: str


def find_commit(ref: str, folder: str) -> Commit:
    """Look a branch, tag or commit up.

    Raises: ValueError in words if the folder is in no repository, or the repository does not have it.
    """
    root = ask_git(["rev-parse", "--show-toplevel"], folder)
    if root.returncode:
        raise ValueError(f"--diff-branch {ref}: {folder} is in no git checkout; start it in the repository to compare")
    found = ask_git(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"], folder)
    if found.returncode:
        raise ValueError(f"--diff-branch {ref}: the repository {root.stdout.strip()} has no such branch or commit")
    return Commit(Path(root.stdout.strip()).resolve(), ref, found.stdout.strip())


@contextlib.contextmanager
def worktree(commit: Commit) -> Iterator[Path]:
    """Check a commit out into a folder of its own, which is gone afterwards, after Ctrl-C too.

    Raises: ValueError in git's words if that fails.
    """
    folder = Path(tempfile.mkdtemp(prefix="compileboard-diff-branch-")).resolve()
    tree = folder / commit.root.name
    try:
        done = ask_git(["worktree", "add", "--detach", "--quiet", str(tree), commit.sha], str(commit.root))
        if done.returncode:
            raise ValueError(f"--diff-branch {commit.ref}: git worktree: {done.stderr.strip()}")
        yield tree
    finally:
        ask_git(["worktree", "remove", "--force", str(tree)], str(commit.root))
        shutil.rmtree(folder, ignore_errors=True)


def moved(path: str, root: Path, tree: Path) -> str:
    """Return the worktree's path for one inside the checkout, and any other as it is."""
    if not os.path.isabs(path):
        return path  # relative to a folder that is moved itself
    resolved = Path(path).resolve()
    return str(tree / resolved.relative_to(root)) if resolved.is_relative_to(root) else path


def moved_environment(environment: Mapping[str, str], root: Path, tree: Path, own: Path) -> dict[str, str]:
    """Return an environment whose PYTHONPATH leads into the worktree where it led into the checkout.

    So does what an editable installation put on our own sys.path. A virtual environment inside the checkout stays,
    and so do we (`own`).
    """
    given = environment.get("PYTHONPATH", "")
    entries = [moved(entry, root, tree) for entry in given.split(os.pathsep)] if given else []
    kept = [Path(sys.prefix).resolve(), own]
    for entry in sys.path:
        path = Path(entry or ".").resolve()
        if entry and path.is_relative_to(root) and not any(path.is_relative_to(it) for it in kept):
            entries.append(moved(entry, root, tree))
    return {**environment, "PYTHONPATH": os.pathsep.join(dict.fromkeys(entries))}
