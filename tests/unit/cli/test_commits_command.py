"""`commits`: a clone's history for a database that only knows hashes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.cli.main import main
from compileboard.collectors.store.migrations import migrate
from tests.tools.repository import commit, git, make_repository


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    migrate(tmp_path / "compileboard.db")
    return make_repository(tmp_path / "clone", "one", "two")


def list_subjects() -> list[str]:
    with closing(sqlite3.connect("compileboard.db")) as connection:
        return [
            row[0] for row in connection.execute("select subject from commits order by subject")
        ]


def test_a_clones_history_is_added_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["commits", "--repository", "clone"]) == 0
    assert "2 of 2 commits of HEAD are new" in capsys.readouterr().err
    git(folder, "switch", "-q", "-c", "side")
    commit(folder, "three")
    git(folder, "switch", "-q", "main")
    assert main(["commits", "--repository", "clone", "--branch", "side"]) == 0
    assert "1 of 3 commits of side are new" in capsys.readouterr().err
    assert list_subjects() == ["one", "three", "two"]


def test_a_shallow_clone_says_what_to_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(folder.parent, "clone", "-q", "--depth", "1", folder.as_uri(), "shallow")
    assert main(["commits", "--repository", "shallow"]) == 0
    assert "git fetch --unshallow" in capsys.readouterr().err
    assert list_subjects() == ["two"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--repository", "nowhere"], "there is no such folder"),
        (["--repository", "."], "is in no git clone"),
        (["--repository", "empty"], "has no commits yet"),
        (["--repository", "clone", "--branch", "nope"], "no branch, tag or commit 'nope'"),
        (["--repository", "clone", "--branch=--all"], "no branch, tag or commit '--all'"),
        (["--repository", "clone", "--db", "other.db"], "There is no database at other.db"),
    ],
)
def test_what_is_not_there_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    make_repository(folder.parent / "empty")
    assert main(["commits", *words]) == 2
    assert message in capsys.readouterr().err
    assert not Path("other.db").exists()


def test_a_machine_without_git_and_a_clone_of_somebody_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert main(["commits", "--repository", "clone"]) == 2
    assert "belongs to another user" in capsys.readouterr().err
    monkeypatch.setenv("PATH", "")
    assert main(["commits", "--repository", "clone"]) == 2
    assert "git is not installed" in capsys.readouterr().err
