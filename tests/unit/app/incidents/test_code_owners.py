"""Owners by CODEOWNERS: the examples of GitHub's and GitLab's documentation."""

from __future__ import annotations

import json
import sqlite3

import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.incidents.code_owners import find_owners, is_gitlab_syntax
from compileboard.app.incidents.queries import load_incidents
from tests.unit.app.benched import bench_suite
from tests.unit.app.series_changes import keep, make_change

GITHUB = r"""
# The last matching pattern takes precedence.
*       @global-owner1 @global-owner2
*.js    @js-owner #This is an inline comment.
*.go docs@example.com
/build/logs/ @doctocat
docs/*  docs@example.com
apps/ @octocat
/scripts/ @doctocat @octocat
**/logs @logs
/apps/ @octocat
/apps/github
/spa\ ce/ @space
!/build/x @nobody
"""
GITLAB = r"""
[README Owners] @default
README.md @user1 @user2
internal/README.md @user4
/docs/* @top-docs
[Docs][2] @docs-team
/docs/
/docs/generated/ @robot
!/docs/secret.md
^[Optional] @quality
**/*.rb
\#file @hash
"""


@pytest.mark.parametrize(
    ("path", "owners"),
    [
        ("setup.py", ["@global-owner1", "@global-owner2"]),
        ("web/app.js", ["@js-owner"]),
        ("x/y.go", ["docs@example.com"]),
        ("build/logs/deep/x.txt", ["@logs"]),
        ("docs/start.md", ["docs@example.com"]),
        ("docs/build/trouble.md", ["@global-owner1", "@global-owner2"]),
        ("lib/apps/x.py", ["@octocat"]),
        ("apps/github", []),
        ("apps/github/x.py", []),
        ("deeply/nested/logs/x", ["@logs"]),
        ("spa ce/x.py", ["@space"]),
        ("build/x", ["@global-owner1", "@global-owner2"]),
    ],
)
def test_github(path: str, owners: list[str]) -> None:
    assert find_owners(GITHUB, path, is_gitlab=False) == owners


@pytest.mark.parametrize(
    ("path", "owners"),
    [
        ("README.md", ["@user1", "@user2"]),
        ("lib/README.md", ["@user1", "@user2"]),
        ("lib/internal/README.md", ["@user4"]),
        ("docs/a.md", ["@top-docs", "@docs-team"]),
        ("docs/deep/a.md", ["@docs-team"]),
        ("docs/generated/a.rb", ["@robot", "@quality"]),
        ("docs/secret.md", ["@top-docs"]),
        ("#file", ["@hash"]),
        ("x.py", []),
    ],
)
def test_gitlab(path: str, owners: list[str]) -> None:
    assert find_owners(GITLAB, path, is_gitlab=True) == owners


def test_whose_syntax_it_is() -> None:
    assert is_gitlab_syntax("* @x", "https://gitlab.com/a/b")
    assert is_gitlab_syntax("^[Docs][2] @x\n/docs/", "git@example.org:a/b")
    assert not is_gitlab_syntax("* @x", "git@github.com:a/b")


@given(st.text("ab/*?[]!\\# @\n", max_size=60), st.text("ab/", max_size=12), st.booleans())
def test_no_file_raises(text: str, path: str, is_gitlab: bool) -> None:
    assert isinstance(find_owners(text, path, is_gitlab=is_gitlab), list)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), st.booleans())
def test_a_path_itself_is_a_pattern_and_the_last_line_counts(
    parts: list[str], is_gitlab: bool
) -> None:
    path = "/".join(parts)
    assert find_owners(f"* @x\n/{path} @y", path, is_gitlab=is_gitlab) == ["@y"]
    assert find_owners(f"/{path} @y\n** @x", path, is_gitlab=is_gitlab) == ["@x"]
    assert find_owners(f"/{path}c @y\n/{path}/d @z", path, is_gitlab=is_gitlab) == []


def test_an_incident_names_the_owners_of_its_first_file(
    store: sqlite3.Connection, client: FlaskClient
) -> None:
    bench_suite(store)
    git = {"tracked": {"": ["bench_models.py"]}, "code_owners": "* @all\n/**/*.py @ann"}
    store.execute("update runs set facts = ?", (json.dumps({"git": git}),))
    keep(store, make_change())
    (incident,) = load_incidents(store)
    assert incident.code_owners == ["@ann"]
    assert "@ann" in client.get(f"/incidents/{incident.id}").text
    assert client.get(f"/api/v1/incidents/{incident.id}").json["data"]["code_owners"] == ["@ann"]
    assert "code owners: @ann" in client.get("/incidents.atom").text
