"""action.yml as the runner would run it: a real repository, bash, a server as GitHub's API."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.action.github import CommentApi, Job, serve_comments
from tests.tools.repository import git

pytestmark = pytest.mark.torch
PROGRAM = """\
import torch


def rank(x):
    y = x * 2
{change}    return y + 1


torch.compile(rank, backend="eager")(torch.ones(3))
"""
BREAK = "    torch._dynamo.graph_break()\n"


@pytest.fixture(scope="module")
def api() -> Iterator[CommentApi]:
    with serve_comments() as server:
        yield server


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, api: CommentApi) -> Job:
    """Run a job of a pull request that adds a break."""
    job = check_out(tmp_path_factory.mktemp("job"), api)
    job.use(command="python nets/ranker.py", install="false")
    return job


@pytest.fixture
def job(measured: Job, api: CommentApi) -> Job:
    """Return that job with an API that has no comment yet."""
    api.comments, api.requests, api.refusal = [], [], None
    return copy.copy(measured)


def check_out(folder: Path, api: CommentApi) -> Job:
    """Make a repository with a pull request, and the shallow clone of its merge that
    actions/checkout makes.
    """
    origin = folder / "origin"
    origin.mkdir(parents=True)
    git(origin, "init", "-q", "-b", "main")
    (origin / "nets").mkdir()
    (origin / "nets" / "ranker.py").write_text(PROGRAM.format(change=""))
    git(origin, "add", ".")
    git(origin, "commit", "-q", "-m", "one")
    base = git(origin, "rev-parse", "HEAD")
    git(origin, "checkout", "-q", "-b", "change")
    (origin / "nets" / "ranker.py").write_text(PROGRAM.format(change=BREAK))
    git(origin, "commit", "-q", "-a", "-m", "change")
    head = git(origin, "rev-parse", "HEAD")
    git(origin, "checkout", "-q", "main")
    (origin / "README").write_text("main went on\n")
    git(origin, "add", ".")
    git(origin, "commit", "-q", "-m", "two")
    git(origin, "merge", "-q", "--no-ff", "-m", "merge", "change")
    workspace = folder / "nets"
    git(folder, "clone", "-q", "--depth=1", f"file://{origin}", str(workspace))
    event = {"pull_request": {"number": 12, "base": {"sha": base}, "head": {"sha": head}}}
    environment = {
        "GITHUB_API_URL": api.url,
        "GITHUB_TOKEN_OF_JOB": "t0ken",
        "COMPILEBOARD_HOME": str(folder / "home"),
    }
    return Job(workspace, event, environment)


def test_a_break_that_the_pull_request_adds_is_annotated_commented_and_fails(
    measured: Job, api: CommentApi
) -> None:
    assert [step.outcome for step in measured.steps.values()] == [
        "skipped",
        "success",
        "failure",
    ], measured.steps
    # What main got meanwhile is on both sides: the base is the merge's first parent, not the
    # event's.
    origin = measured.workspace.parent / "origin"
    assert measured.steps["measure"].outputs["base"] == git(origin, "rev-parse", "main^1")
    [warning] = [line for line in measured.steps["check"].out.splitlines() if line.startswith("::")]
    assert warning.startswith("::warning file=nets/ranker.py,line=6,title=1 graph break added::")
    assert "this PR adds 1 graph break at nets/ranker.py:6%0A" in warning
    assert warning.endswith("%0AFix: Remove the call of `torch._dynamo.graph_break()`")
    assert (
        measured.summary.startswith("### ❌ 1 new graph break\n\nranker.py · ")
        and "NEW" in measured.summary
    )
    assert (
        "<br>Fix: Remove the call" in measured.summary and "later pull requests" in measured.summary
    )
    [comment] = api.comments
    assert comment["body"].startswith("<!-- compileboard: check -->\n### ❌ 1 new graph break")
    assert "(https://github.example.org/ann/nets/actions/runs/77)" in comment["body"]
    assert {token for _method, _path, token in api.requests} == {"Bearer t0ken"}
    assert git(measured.workspace, "status", "--porcelain", "-uno") == ""
    assert len(git(measured.workspace, "worktree", "list").splitlines()) == 1


def test_the_comment_is_updated_in_place_past_the_first_page(job: Job, api: CommentApi) -> None:
    marker = "<!-- compileboard: check -->"
    api.comments += [{"id": n, "body": "hello", "user": {"type": "User"}} for n in range(1, 130)]
    api.comments.append(
        {
            "id": 130,
            "body": f"{marker} mine",
            "user": {"type": "User"},
            "author_association": "NONE",
        }
    )
    for _push in range(2):
        job.use(only="check")
    assert [method for method, _path, _token in api.requests] == [
        "GET",
        "GET",
        "POST",
        "GET",
        "GET",
        "PATCH",
    ]
    assert len(api.comments) == 131 and api.comments[129]["body"] == f"{marker} mine"
    assert "❌ 1 new" in api.comments[130]["body"]


def test_a_read_only_token_leaves_the_summary_which_says_so(job: Job, api: CommentApi) -> None:
    api.refusal = 403
    (job.workspace / "rules.toml").write_text('rule = ["new-recompiles"]\n')
    job.use(only="check", rules="rules.toml")
    assert job.steps["check"].outcome == "success", job.steps[
        "check"
    ]  # by the rules: a break is none of theirs
    assert (
        "::notice title=CompileBoard::no comment on the pull request: GitHub answered 403"
        in job.steps["check"].out
    )
    assert (
        "No comment on the pull request: GitHub answered 403" in job.summary and api.comments == []
    )


@pytest.mark.nightly
def test_a_stored_run_is_compared_with_where_a_baseline_is_named(job: Job) -> None:
    stored = job.steps["measure"].outputs["base-run"]
    job.use(command="python nets/ranker.py", install="false", baseline=stored, comment="")
    assert job.steps["measure"].outputs["base-run"] == "" and f"against run {stored}" in job.summary
    assert "::warning file=nets/ranker.py,line=6" in job.steps["check"].out


def test_a_command_that_fails_fails_the_job_and_replaces_what_the_comment_said(
    job: Job, api: CommentApi
) -> None:
    job.use(only="check")
    job.use(command="python -c 'raise SystemExit(3)'", install="false")
    assert [step.outcome for step in job.steps.values()] == ["skipped", "failure", "failure"]
    assert (
        len(api.comments) == 1
        and "Not compared" in api.comments[0]["body"]
        and "Not compared" in job.summary
    )
    assert "ended with exit code 3 before it compiled anything" in job.summary


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        (
            {"command": ""},
            "nothing to measure; expected --bench 'OPTIONS' or --command 'COMMAND', one of both",
        ),
        ({"command": "'"}, "--command ': No closing quotation"),
        (
            {"command": "true", "base": "nowhere"},
            "there is no commit 'nowhere' in this clone or its origin",
        ),
        (
            {"bench": "--only path:none.py"},
            (
                "ended with exit code 2 before it recorded the checkout; the reason is in the "
                "job's log"
            ),
        ),
    ],
)
def test_what_is_not_measured_says_why_in_the_summary(
    job: Job, inputs: dict[str, str], sentence: str
) -> None:
    job.use(install="false", **inputs)
    assert [step.outcome for step in job.steps.values()] == ["skipped", "failure", "failure"]
    assert job.summary.startswith("### ⚠️ Not measured\n") and sentence in job.summary.replace(
        "\\", ""
    )


def test_a_file_of_rules_that_cannot_be_read_says_so_in_the_summary(
    job: Job, api: CommentApi
) -> None:
    (job.workspace / "odd.toml").write_text("tolerance = -1\n")
    job.use(only="check", rules="odd.toml")
    assert (
        job.steps["check"].outcome == "failure" and "is not a finite number above 0" in job.summary
    )
    job.use(only="check", rules="none.toml")
    assert "none.toml: No such file" in job.summary and "none.toml" in api.comments[0]["body"]


def test_a_push_is_no_pull_request(job: Job, api: CommentApi) -> None:
    job.event, job.event_name = {}, "push"
    job.use(only="check")
    assert (
        "this push adds 1 graph break" in job.steps["check"].out
        and "::notice" not in job.steps["check"].out
    )
    assert "comment" not in job.summary and api.requests == []


def test_text_of_an_input_is_never_a_script(job: Job, tmp_path: Path) -> None:
    trap = f'"; touch {tmp_path}/trapped; $(touch {tmp_path}/trapped) "'
    for name in ("command", "bench", "base", "baseline", "rules", "database", "comment"):
        job.use(**{"command": "" if name == "bench" else "true", "install": "false", name: trap})
        assert job.failed, name
    assert not (tmp_path / "trapped").exists()
