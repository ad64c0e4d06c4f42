"""Links to forges: only https addresses of known hosts come out of what a run recorded."""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.core.forge import RunSource, find_repository, parse_forges
from compileboard.app.core.settings import SettingError, load_settings
from tests.unit.app.seed import add_run

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FORGES = parse_forges(
    "git.corp.example=gitlab,src.corp.example=https://{host}/c/{commit}|https://x.example/{file}?l={line}"
)


FILE = "a%20b/m.py"


@pytest.mark.parametrize(
    ("remote", "commit_at", "line_at"),
    [
        ("https://github.com/a/b.git", "github.com/a/b/commit", "github.com/a/b/blob"),
        ("git@github.com:a/b.git", "github.com/a/b/commit", "github.com/a/b/blob"),
        (
            "https://<withheld>@gitlab.com/g/s/b",
            "gitlab.com/g/s/b/-/commit",
            "gitlab.com/g/s/b/-/blob",
        ),
        (
            "ssh://git@git.corp.example:22/g/b.git",
            "git.corp.example/g/b/-/commit",
            "git.corp.example/g/b/-/blob",
        ),
        (
            "https://codeberg.org/a/b/",
            "codeberg.org/a/b/commit",
            "codeberg.org/a/b/src/commit",
        ),
    ],
)
def test_links_of_each_forge(remote: str, commit_at: str, line_at: str) -> None:
    repository = find_repository(remote, FORGES)
    assert repository is not None
    assert repository.commit_url(COMMIT) == f"https://{commit_at}/{COMMIT}"
    line_url = repository.line_url(COMMIT, "a b/m.py", 7)
    assert line_url == f"https://{line_at}/{COMMIT}/{FILE}#L7"
    assert repository.commit_url("not a hash") is None


def test_a_forge_with_patterns_of_its_own() -> None:
    repository = find_repository("https://src.corp.example/a/b", FORGES)
    assert repository is not None
    assert repository.commit_url(COMMIT) == f"https://src.corp.example/c/{COMMIT}"
    assert repository.line_url(COMMIT, "a b/m.py", 7) == f"https://x.example/{FILE}?l=7"


@pytest.mark.parametrize(
    "remote",
    [
        "javascript:alert(1)//github.com/a/b",
        "https://ann:secret@github.com/a/b",
        "https://github.com/a b/c",
        'https://github.com/a/b"onclick="x',
        "https://github.com.evil.example/a/b",
        "https://github.com@evil.example/a/b",
        "https://github.com/../b",
        "https://github.com/a/b\n",
        "git.unknown.example:a/b",
        "/srv/git/model.git",
        "file:///srv/a/b",
        "",
    ],
)
def test_a_hostile_or_unknown_remote_has_no_link(remote: str) -> None:
    assert find_repository(remote, FORGES) is None


@given(st.text(max_size=30), st.text(max_size=40), st.integers(0, 9))
def test_no_text_leaves_its_forge(path: str, file: str, line: int) -> None:
    repository = find_repository(f"https://github.com/{path}", FORGES)
    if repository is not None:
        url = repository.line_url(COMMIT, file, line)
        assert url is not None
        assert re.fullmatch(r"https://github\.com/[\w.~+/%#-]+", url, re.ASCII)


def test_a_file_is_found_by_the_folders_that_its_name_may_start_from() -> None:
    repository = find_repository("git@github.com:a/b", FORGES)
    git: Any = {"root": "/w/b", "tracked": {"": ["lib", "tests"], "sub": ["train.py", "tests"]}}
    source = RunSource(COMMIT, git=git, repository=repository)
    names = ("train.py", "lib/x.py", "tests/x.py", "torch/x.py", "lib/../x")
    found = [source.find_place(name, 3) for name in names]
    assert [place.file if place else None for place in found] == [
        *("sub/train.py", "lib/x.py"),
        *(None, None, None),
    ]
    assert found[0] is not None
    assert found[0].path == "/w/b/sub/train.py"
    assert found[0].url == f"https://github.com/a/b/blob/{COMMIT}/sub/train.py#L3"


@pytest.mark.parametrize(
    "value",
    [
        "git.example.org",
        "git.example.org=svn",
        "h=javascript:x|https://y/{file}",
        "h=https://y/{commit}|https://y/{secret}",
    ],
)
def test_a_wrong_forge_is_refused(value: str) -> None:
    with pytest.raises(SettingError, match="expected HOST=KIND"):
        load_settings({"COMPILEBOARD_FORGES": value})


def test_pages_link_commits_lines_and_the_ci_job(
    store: sqlite3.Connection, client: FlaskClient
) -> None:
    git = {"remote": "git@github.com:a/b.git", "root": "/w/b", "tracked": {"": ["model.py"]}}
    ci = {"service": "GitLab CI", "url": "https://ci.example/j/1"}
    add_run(store, "R1", facts=json.dumps({"git": git, "ci": ci}))
    add_run(store, "R2", facts=json.dumps({"ci": {"service": "x", "url": "javascript:alert(1)"}}))
    store.commit()
    address = f'href="https://github.com/a/b/commit/{COMMIT}" rel="noopener noreferrer"'
    assert address in client.get("/runs").text
    page = client.get("/runs/R1?tab=environment").text
    assert address in page
    assert '<a href="https://ci.example/j/1" rel="noopener noreferrer"' in page
    assert "javascript:" not in client.get("/runs/R2?tab=environment").text
