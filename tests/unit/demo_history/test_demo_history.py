"""The demo's history: its versions apply, its repository has them and leaves nothing."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo_history import __main__ as command
from examples.demo_history.history import Setup, list_measured
from examples.demo_history.repository import AUTHOR, Repository
from examples.demo_history.versions import PROJECT, VERSIONS, apply, read_project
from tests.tools.observed import ROOT
from tests.tools.repository import git


def test_versions_apply_in_order_and_each_is_python() -> None:
    files = read_project()
    for version in VERSIONS:
        before, files = files, apply(version, files)
        assert version is VERSIONS[0] or files != before, version.subject
        for name, text in files.items():
            compile(text, name, "exec")
    assert len({version.subject for version in VERSIONS}) == len(VERSIONS) >= 12


def test_an_edit_that_does_not_fit_says_so() -> None:
    with pytest.raises(
        ValueError, match=r"print nothing.*expected .* once in encoder\.py; found it 0 times"
    ):
        apply(
            next(version for version in VERSIONS if "print nothing" in version.subject),
            read_project(),
        )


def test_models_are_listed_without_importing_torch() -> None:
    code = (  # in a process of its own: another test may have imported torch here
        "import sys; from compileboard.collectors.bench.suites.user import import_file, "
        "marked_functions\n"
        f"found = marked_functions(import_file({str(PROJECT / 'bench_models.py')!r}))\n"
        "print([it[0].name for it in found], 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "['encoder', 'ranker'] False\n"


def test_the_repository_has_the_versions_commits_and_is_gone_afterwards() -> None:
    with Repository() as first, Repository() as second:
        hashes = [first.commit(version) for version in VERSIONS]
        assert [second.commit(version) for version in VERSIONS] == hashes, (
            "the same versions are the same commits"
        )
        log = git(first.folder, "log", "--reverse", "--format=%H %an %s", "main").splitlines()
        assert log == [
            f"{key} {AUTHOR['NAME']} {version.subject}" for key, version in zip(hashes, VERSIONS)
        ]
        assert git(first.folder, "status", "--porcelain") == ""
    assert not first.folder.parent.exists() and not second.folder.parent.exists()


def test_nobodys_git_settings_are_read_or_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / ".gitconfig"
    settings.write_text(
        "[commit]\n\tgpgsign = true\n[user]\n\tuseConfigOnly = true\n[core]\n\texcludesFile = "
        "/dev/stdin\n"
    )
    before = settings.read_text()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    with Repository() as repository:
        assert len(repository.commit(VERSIONS[0])) == 40
    assert settings.read_text() == before and list(tmp_path.iterdir()) == [settings]


@pytest.mark.usefixtures("with_a_torch")
def test_without_git_the_server_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ends = [sys.executable, "-c", "import time; time.sleep(1); raise SystemExit(7)"]
    assert command.main(["--db", str(tmp_path / "a.db"), "--", *ends]) == 7
    assert "it stops here: git is not installed" in capsys.readouterr().err


@pytest.mark.usefixtures("with_a_torch")
def test_a_server_that_ends_ends_the_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = [sys.executable, "-c", "raise SystemExit(5)"]
    assert command.main(["--db", str(tmp_path / "a.db"), "--", *ends]) == 5
    assert "recorded" not in capsys.readouterr().err


def test_a_database_that_is_not_there_has_nothing_of_it(tmp_path: Path) -> None:
    assert list_measured(str(tmp_path / "none.db")) == set()


def test_what_is_measured_on_a_gpu_is_not_what_is_measured_on_a_cpu() -> None:
    cpu = Setup("a.db", "cpu", "eager")
    gpu = dataclasses.replace(cpu, device="cuda", backend="inductor")
    assert "--threads" in cpu.command(()) and "--threads" not in gpu.command(())
    assert gpu.name(["--dynamic-shapes"]) == "demo history, inductor --dynamic-shapes"


@pytest.fixture
def with_a_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command find a torch, which unit tests have none of, and its signals go back to where
    they were.
    """
    monkeypatch.setattr(
        command, "find_setup", lambda database, backend: Setup(database, "cpu", backend or "eager")
    )
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)


@pytest.mark.usefixtures("with_a_torch")
def test_the_history_ends_by_saying_which_page_to_open_and_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "measure_history", lambda *_args, **_options: 0)
    ends = [sys.executable, "-c", "import time; time.sleep(1)"]
    assert command.main(["--db", str(tmp_path / "a.db"), "--port", "9123", "--", *ends]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert "demo history: open http://127.0.0.1:9123/ and look for" in lines
    subjects = " ".join(version.subject for version in VERSIONS)
    for word in ("print", "random half of the candidates"):
        assert word in " ".join(lines[-3:]) and word in subjects


def test_make_demo_frames_the_programs_output_and_names_the_page() -> None:
    printed = subprocess.run(
        ["make", "--no-print-directory", "-n", "-o", "setup", "demo", "PORT=9123", "HISTORY=no"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    ).stdout.splitlines()
    program = next(number for number, line in enumerate(printed) if "examples.demo_program" in line)
    assert (
        "output of the program" in printed[program - 1]
        and "end of the program" in printed[program + 1]
    )
    assert "http://127.0.0.1:9123/runs?suite=demo" in printed[program + 2]
    assert "app serve" in printed[-1]


def test_setup_says_what_it_is_doing() -> None:
    text = (ROOT / ".ci" / "setup").read_text()
    steps = [line for line in text.splitlines() if line.strip().startswith('echo "setup: ')]
    assert len(steps) >= 5 and "--quiet" not in text
