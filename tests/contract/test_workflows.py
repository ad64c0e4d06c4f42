"""CI, issue forms and pre-commit hooks parse, and have the versions of Makefile and constraints."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"


def read_yaml(path: Path) -> dict:
    return yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)  # versions stay text


def test_nightly_runs_each_version_that_make_versions_runs():
    job = read_yaml(GITHUB / "workflows" / "nightly.yml")["jobs"]["versions"]
    (listed,) = re.findall(r"^TORCH := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert job["strategy"]["matrix"]["torch"] == listed.split()


def test_workflows_pin_their_actions_and_run_what_exists():
    for path in (GITHUB / "workflows").glob("*.yml"):
        steps = [step for job in read_yaml(path)["jobs"].values() for step in job["steps"]]
        used = [step["uses"] for step in steps if "uses" in step]
        scripts = [s["run"] for s in steps if s.get("run", "").startswith(".ci/")]
        assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d[\d.]*", name) for name in used), path
        assert all((ROOT / script).is_file() for script in scripts), path


def test_issue_forms_have_what_github_requires():
    for name in ("bug.yml", "idea.yml"):
        form = read_yaml(GITHUB / "ISSUE_TEMPLATE" / name)
        assert {"name", "description", "body"} <= set(form)
        assert all(field["attributes"]["label"] for field in form["body"])


def test_pre_commit_has_the_ruff_that_ci_has():
    hooks = read_yaml(ROOT / ".pre-commit-config.yaml")["repos"]
    (ruff,) = [repo["rev"] for repo in hooks if "ruff" in repo["repo"]]
    assert f"ruff=={ruff.removeprefix('v')}\n" in (ROOT / "constraints.txt").read_text()
