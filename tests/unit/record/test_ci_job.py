"""A run's CI job, from the variables that each service documents."""

from __future__ import annotations

import pytest

from compileboard.collectors.record.ci_job import ci_job

GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "a/b",
    "GITHUB_RUN_ID": "77",
    "GITHUB_RUN_ATTEMPT": "2",
}
BUILDKITE = {
    "BUILDKITE": "true",
    "BUILDKITE_BUILD_URL": "https://buildkite.com/a/p/builds/5",
    "BUILDKITE_JOB_ID": "01-ab",
}
GITLAB = {"GITLAB_CI": "true"}


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        (GITHUB, "https://github.com/a/b/actions/runs/77/attempts/2"),
        (GITLAB | {"CI_JOB_URL": "https://git.x/g/p/-/jobs/9"}, "https://git.x/g/p/-/jobs/9"),
        (BUILDKITE, "https://buildkite.com/a/p/builds/5#01-ab"),
        ({"CIRCLECI": "true", "CIRCLE_BUILD_URL": "https://x.com/gh/3"}, "https://x.com/gh/3"),
        ({"JENKINS_URL": "http://ci/", "BUILD_URL": "http://ci:80/job/5/"}, "http://ci:80/job/5/"),
        (GITHUB | {"GITEA_ACTIONS": "true"}, None),
        (GITHUB | {"GITHUB_SERVER_URL": "javascript:alert(1)//"}, None),
        (GITHUB | {"GITHUB_REPOSITORY": 'a/b" onclick="'}, None),
        (GITLAB | {"CI_JOB_URL": "https://ann:pw@git.x/1"}, None),
        (GITLAB | {"CI_JOB_URL": "https://git.x/1?private_token=abc"}, None),
        ({"GITHUB_ACTIONS": "true"}, None),
        ({"CI": "true"}, None),
    ],
)
def test_the_job_of_each_service(environment: dict[str, str], url: str | None) -> None:
    assert ci_job(environment).get("url") == url
