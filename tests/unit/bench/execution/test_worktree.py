"""A commit in a worktree of its own: real git, and a checkout that nothing touches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compileboard.collectors.bench.execution.diff_branch import (
    find_commit,
    relocate_environment,
    relocate_path,
    worktree,
)
from tests.tools.repository import git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Make a checkout whose file differs from its first commit, with a change of its own on top."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "width.py").write_text("WIDTH = 1\n")
    git(folder, "add", "width.py")
    git(folder, "commit", "-q", "-m", "one")
    git(folder, "branch", "before")
    (folder / "width.py").write_text("WIDTH = 2\n")
    git(folder, "commit", "-q", "-a", "-m", "two")
    (folder / "width.py").write_text("WIDTH = 3\n")
    return folder


def state(folder: Path) -> tuple[str, ...]:
    asked = (
        ["status", "--porcelain"],
        ["branch"],
        ["stash", "list"],
        ["worktree", "list"],
        ["rev-parse", "HEAD"],
    )
    return (*(git(folder, *words) for words in asked), (folder / "width.py").read_text())


def test_the_checkout_stays_as_it_is(repository: Path) -> None:
    before = state(repository)
    (repository / ".git" / "hooks" / "post-checkout").write_text(
        "#!/bin/sh\necho run > ../hooked\n"
    )
    (repository / ".git" / "hooks" / "post-checkout").chmod(0o755)
    with worktree(find_commit("before", str(repository))) as tree:
        assert (tree / "width.py").read_text() == "WIDTH = 1\n"
        assert not (repository.parent / "hooked").exists() and not (tree.parent / "hooked").exists()
    assert not tree.parent.exists()
    assert state(repository) == before


def test_it_is_removed_whatever_ends_it(repository: Path) -> None:
    before = state(repository)
    with pytest.raises(KeyboardInterrupt), worktree(find_commit("before", str(repository))) as tree:
        (tree / "left.txt").write_text("a run left this")
        raise KeyboardInterrupt
    assert not tree.exists() and state(repository) == before


def test_what_does_not_exist_is_said_before_anything_is_made(
    repository: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="has no such branch or commit"):
        find_commit("--force", str(repository))
    with pytest.raises(ValueError, match="is in no git checkout"):
        find_commit("main", str(tmp_path))


def test_paths_inside_the_checkout_move_and_others_stay(repository: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    assert relocate_path(str(repository / "a" / "nets.py"), repository, tree) == str(
        tree / "a" / "nets.py"
    )
    assert relocate_path("/usr/lib", repository, tree) == "/usr/lib"
    assert relocate_path("src", repository, tree) == "src", "relative to a folder that moves itself"


def test_pythonpath_leads_into_the_worktree(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, venv = tmp_path / "tree", repository / ".venv"
    monkeypatch.setattr(
        "sys.path", [str(repository / "src"), str(venv / "lib"), "/usr/lib/python3"]
    )
    monkeypatch.setattr("sys.prefix", str(venv))
    given = {"PYTHONPATH": f"{repository}{os.pathsep}/elsewhere", "HOME": "/home/me"}
    environment = relocate_environment(given, repository, tree, tmp_path / "own")
    assert environment["PYTHONPATH"].split(os.pathsep) == [
        str(tree),
        "/elsewhere",
        str(tree / "src"),
    ]
    assert environment["HOME"] == "/home/me"
