"""What is installed is what is in the tree, and nothing of ours has another home."""

import re
import subprocess
from pathlib import Path

import tomllib
import yaml

from compileboard.version import VERSION
from tests.tools.dist import INSTALLED, list_gaps

ROOT = Path(__file__).resolve().parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_every_package_of_the_tree_is_in_the_distribution():
    packages = {
        ".".join(("compileboard", *path.parent.relative_to(ROOT).parts))
        for top in ("app", "collectors")
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert packages - set(SETUPTOOLS["packages"]) == set()


def test_images_are_built_from_all_that_is_installed():
    needed = {
        "pyproject.toml",
        "compileboard",
        "app",
        "collectors",
        *SETUPTOOLS["package-dir"].values(),
    }
    stages = (ROOT / "Dockerfile").read_text().split("\nFROM ")[1:]
    for stage in stages:
        copied = {
            name
            for line in re.findall(r"^COPY (.+) \S+$", stage, re.MULTILINE)
            for name in line.split()
        }
        assert needed <= copied


def test_workflows_of_the_documents_give_the_action_inputs_that_it_has():
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    page = (ROOT / "docs" / "github-action.md").read_text()
    blocks = [
        yaml.safe_load(block)
        for block in re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    ]
    jobs = [
        job for block in blocks if isinstance(block, dict) for job in block.get("jobs", {}).values()
    ]
    steps = [step for job in jobs for step in job["steps"]]
    steps += [step for block in blocks if isinstance(block, list) for step in block]
    given = [
        set(step["with"]) for step in steps if step.get("uses", "").startswith("OWNER/compileboard")
    ]
    assert len(given) == 2 and all(names <= set(inputs) for names in given)
    assert {name for name in inputs if f"`{name}`" not in page} == set()
    assert all(
        "${{" not in step["run"]
        for step in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    )


def test_no_tracked_file_names_a_machine_or_is_build_output():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert [
        name for name in tracked if re.search(r"\.(db|db-wal|pyc|whl)$|egg-info|^\.venv", name)
    ] == []


def test_front_end_bundles_match_their_hashes():
    import hashlib

    readmes = list((ROOT / "static" / "vendor").rglob("README.md"))
    text = "\n".join(path.read_text() for path in readmes)
    for bundle in (ROOT / "static" / "vendor").rglob("*.js"):
        # As npm has it: without the parentheses that let a browser compile it beside the main
        # thread.
        opened = bundle.read_bytes().replace(b": this, (() => {\n", b": this, () => {\n")
        original = opened.removesuffix(b")));") + b"));"
        assert hashlib.sha256(original).hexdigest() in text, bundle.name


def test_every_file_of_the_packages_is_in_the_wheel():
    names = subprocess.run(
        ["git", "ls-files", *INSTALLED], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    folders = SETUPTOOLS["package-dir"]
    packed = {
        str(path.relative_to(ROOT))
        for package, patterns in SETUPTOOLS["package-data"].items()
        for pattern in patterns
        for path in (
            ROOT / folders.get(package, package.replace(".", "/").removeprefix("compileboard/"))
        ).glob(pattern)
    }
    left = {name for name in names if not name.endswith(".py")} - packed
    assert {name for name in left if not (ROOT / name).is_symlink()} == set()


def test_the_version_is_the_newest_of_the_changes_and_the_one_that_is_deployed():
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (\d\S*) - \d{4}-\d\d-\d\d$", changes, re.MULTILINE)[0] == VERSION
    assert f"/compileboard:{VERSION}\n" in (ROOT / "deploy" / "kubernetes.yaml").read_text()


def test_a_distribution_tried_on_fewer_than_two_pythons_fails_and_names_the_others():
    sentence, is_enough = list_gaps([11])
    assert not is_enough and sentence.startswith("Python 3.10, 3.12, 3.13, 3.14 were not tried")
    assert list_gaps([11, 13])[1] and list_gaps([11], [11])[1]
    assert list_gaps([11, 12], [11, 14]) == (
        "Python 3.14 was not tried: not on this machine, and asked for",
        False,
    )
