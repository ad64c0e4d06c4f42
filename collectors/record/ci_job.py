"""Find the CI job of a run in the variables that each CI service documents."""

from __future__ import annotations

from collections.abc import Mapping

from compileboard.collectors.contract.secrets import scrub_text
from compileboard.collectors.contract.shapes import CI_JOB_URL, CiJob

# Gitea's and Forgejo's runners set GitHub's variables too, but have other addresses.
_NOT_GITHUB = ("GITEA_ACTIONS", "FORGEJO_ACTIONS")
# Service, a variable that only it sets, its address of the job, the variable with the job's name.
_SERVICES = (
    (
        "GitHub Actions",
        "GITHUB_ACTIONS",
        "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}"
        "/attempts/{GITHUB_RUN_ATTEMPT}",
        "GITHUB_JOB",
    ),
    ("GitLab CI", "GITLAB_CI", "{CI_JOB_URL}", "CI_JOB_NAME"),
    ("Buildkite", "BUILDKITE", "{BUILDKITE_BUILD_URL}#{BUILDKITE_JOB_ID}", "BUILDKITE_LABEL"),
    ("CircleCI", "CIRCLECI", "{CIRCLE_BUILD_URL}", "CIRCLE_JOB"),
    ("Jenkins", "JENKINS_URL", "{BUILD_URL}", "JOB_NAME"),
)


def ci_job(environment: Mapping[str, str]) -> CiJob:
    """Return service, address and name of the CI job. Empty outside CI, or if the address is not a
    plain http(s) URL.
    """
    if any(environment.get(name) for name in _NOT_GITHUB):
        return {}
    for service, mark, address, name in _SERVICES:
        if not environment.get(mark):
            continue
        try:
            url = address.format_map(environment)
        except KeyError:
            return {}
        if not CI_JOB_URL.fullmatch(url) or scrub_text(url) != url:
            return {}
        return {"service": service, "url": url, "name": scrub_text(environment.get(name, ""))[:200]}
    return {}
