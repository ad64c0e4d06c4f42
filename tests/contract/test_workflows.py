"""What GitHub reads is as its schemas require, and calls commands and versions that exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
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
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in (GITHUB / "workflows").glob("*.yml"):
        steps = [step for job in read_yaml(path)["jobs"].values() for step in job["steps"]]
        used = [step["uses"] for step in steps if "uses" in step]
        scripts = re.findall(r"^\.ci/\w+", "\n".join(s.get("run", "") for s in steps), re.MULTILINE)
        made = re.findall(r"^make (\w+)", "\n".join(s.get("run", "") for s in steps), re.MULTILINE)
        assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d[\d.]*", name) for name in used), path
        assert all(os.access(ROOT / script, os.X_OK) for script in scripts), path
        assert set(made) <= targets and made + scripts, path


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("github-workflows", ".github/workflows/*.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/[bi]*.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("github-actions", "action.yml"),
    ],
)
def test_files_for_github_are_as_its_schemas_require(schema: str, pattern: str):
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed")
    files = sorted(map(str, ROOT.glob(pattern)))
    checker = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}")
    done = subprocess.run([*checker, *files], capture_output=True, text=True)
    assert files and done.returncode == 0, done.stdout + done.stderr
