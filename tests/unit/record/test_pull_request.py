"""The commit that a workflow's event compares the checkout with, in a real clone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.record.git import find_base
from tests.tools.repository import commit, git, make_repository

FindBase = Callable[[dict[str, Any]], str]


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = make_repository(tmp_path / "origin", "one", "two")
    git(folder, "checkout", "-q", "-b", "change")
    commit(folder, "change")
    git(folder, "checkout", "-q", "main")
    commit(folder, "three")
    return folder


def check_out(origin: Path, branch: str) -> FindBase:
    """Return what reads an event in a shallow clone of one branch."""
    clone = origin.parent / "clone"
    git(
        origin.parent,
        "clone",
        "-q",
        "--depth=1",
        "--branch",
        branch,
        f"file://{origin}",
        str(clone),
    )
    event = origin.parent / "event.json"

    def find(document: dict[str, Any]) -> str:
        event.write_text(json.dumps(document))
        return find_base({"GITHUB_EVENT_PATH": str(event), "GITHUB_EVENT_NAME": "some"}, str(clone))

    return find


def test_a_merge_commit_is_compared_with_its_first_parent(origin: Path) -> None:
    head, old, base = (git(origin, "rev-parse", name) for name in ("change", "main~1", "main"))
    git(origin, "merge", "-q", "--no-ff", "-m", "merge", "change")
    find = check_out(origin, "main")
    assert find({"pull_request": {"base": {"sha": old}, "head": {"sha": head}}}) == base
    assert (
        find({"pull_request": {"base": {"sha": old}, "head": {"sha": old}}}) == old
    )  # another checkout


def test_a_push_or_merge_group_is_compared_with_what_it_came_onto(origin: Path) -> None:
    before = git(origin, "rev-parse", "main~1")
    find = check_out(origin, "main")
    assert find({"before": before}) == find({"merge_group": {"base_sha": before}}) == before


def test_the_first_push_of_a_branch_is_compared_with_the_default_branch(origin: Path) -> None:
    find = check_out(origin, "change")
    event = {
        "before": "0" * 40,
        "ref": "refs/heads/change",
        "repository": {"default_branch": "main"},
    }
    assert find(event) == git(origin, "rev-parse", "main")
    with pytest.raises(ValueError, match="the event some names no commit to compare with"):
        find(event | {"ref": "refs/heads/main"})


@pytest.mark.parametrize(
    "event", [{}, {"before": "--output=x"}, {"before": 5}, {"pull_request": []}]
)
def test_an_event_without_a_commit_is_refused(origin: Path, event: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match="expected a pull request, a merge group or a push; name one with `base`"
    ):
        check_out(origin, "main")(event)
