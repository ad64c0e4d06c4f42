"""What a run is called, where it comes from, and what its spool says of itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.contract.shapes import Gpu
from compileboard.collectors.decode import break_texts as break_registry
from compileboard.collectors.record.facts import (
    default_name,
    git_facts,
    joined_run_id,
    program_folder,
    stored_command,
    visible_gpus,
)
from compileboard.collectors.record.live import child_environment, prepare
from compileboard.collectors.record.program import signal_name
from compileboard.collectors.record.recover_spools import recover_spools
from compileboard.collectors.record.spool import Manifest, home, new_run_id, read_manifest
from tests.tools.observed import Workplace


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "src/train.py", "--lr", "3"], "train.py"),
        (["python", "-m", "my.module"], "my.module"),
        (
            ["python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"],
            "train.py",
        ),
        (["/usr/bin/make", "all"], "make"),
        (["python3", "-c", "import torch", "x.py"], "python -c"),
        (["python", "-Wignore", "-X", "dev", "-u", "train"], "train"),
        (["python", "-um", "my.module", "x.py"], "my.module"),
        (
            [
                "python",
                "-m",
                "compileboard.collectors",
                "run",
                "--db",
                "x.db",
                "--",
                "python",
                "train.py",
            ],
            "train.py",
        ),
        (["compileboard-collect", "run", "--", "python", "-c", "pass"], "python -c"),
        (["torchrun", "--nproc-per-node", "2", "-m", "my.module"], "my.module"),
        (["torchrun", "--nproc-per-node", "2", "src/train.py"], "train.py"),
        (["python"], "python"),
    ],
)
def test_a_run_is_named_after_its_script(command: list[str], name: str) -> None:
    assert default_name(command) == name


def test_run_ids_sort_by_time() -> None:
    ids = [new_run_id(ms) for ms in (1, 2, 1_700_000_000_000, 1_700_000_000_001)]
    assert ids == sorted(ids)
    assert {len(run_id) for run_id in ids} == {26}


def test_the_home_is_where_the_environment_says() -> None:
    assert home({"COMPILEBOARD_HOME": "/x"}) == Path("/x")
    assert home({"XDG_STATE_HOME": "/state"}) == Path("/state/compileboard")
    assert home({"HOME": "/h"}) == Path("/h/.local/state/compileboard")


def test_visible_gpus_are_those_that_cuda_would_show() -> None:
    gpus: list[Gpu] = [{"index": str(n), "uuid": f"GPU-{n}abc"} for n in range(3)]
    assert visible_gpus(gpus, None) == gpus
    assert [gpu["index"] for gpu in visible_gpus(gpus, "2,GPU-0,9,1")] == ["2", "0"]
    assert visible_gpus(gpus, "") == []


def test_the_repository_is_the_programs_own(workplace: Workplace) -> None:
    path = workplace.write("pass", "repo/train.py")
    script = (
        "git init -q -b main . && git add . && git -c user.name=n -c user.email=e commit -qm "
        "'Add <b>it</b>'"
    )
    assert workplace.plain("bash", "-c", script, cwd=path.parent).returncode == 0
    facts = git_facts(program_folder(["python", str(path)], str(workplace.folder)))
    assert (facts["branch"], facts["subject"], facts["dirty"]) == ("main", "Add <b>it</b>", False)
    path.write_text("changed")
    assert git_facts(str(path.parent))["dirty"] is True
    assert git_facts(str(workplace.folder)) == {}


@pytest.mark.parametrize(
    ("remote", "stored"),
    [
        ("https://ann:p@ss@git.example.org/a/b.git", "https://git.example.org/a/b.git"),
        ("https://glpat-0123456789abcdefghij@git.example.org/a/b", "https://git.example.org/a/b"),
        ("git@github.com:a/b.git", "git@github.com:a/b.git"),
    ],
)
def test_a_remote_is_stored_without_its_login(
    workplace: Workplace, remote: str, stored: str
) -> None:
    (workplace.folder / "sub").mkdir()
    (workplace.folder / "sub" / "train.py").touch()
    for folder in (".gitlab", "docs"):
        (workplace.folder / folder).mkdir()
        (workplace.folder / folder / "CODEOWNERS").write_text(f"# Owners\n* @{folder}\n")
    for words in (
        ["init", "-q"],
        ["add", "sub", "docs", ".gitlab"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
        ["remote", "add", "origin", remote],
    ):
        subprocess.run(["git", *words], cwd=workplace.folder, check=True)
    facts = git_facts(str(workplace.folder), str(workplace.folder / "sub"))
    assert facts["remote"] == stored
    assert facts["tracked"] == {"": [".gitlab", "docs", "sub"], "sub": ["train.py"]}
    assert facts["code_owners"] == "* @docs"


def test_the_childs_environment_is_the_callers_and_ours(workplace: Workplace) -> None:
    config = RunConfig(database=str(workplace.database), keep_source=False, capture_env=("A", "B"))
    inner = child_environment(config, {"PYTHONPATH": "a::b", "X": "1"}, "R", workplace.folder)
    entries = inner["PYTHONPATH"].split(os.pathsep)
    assert entries[1:] == ["a", "", "b"]
    assert (inner["X"], inner["COMPILEBOARD_NO_SOURCE"], inner["COMPILEBOARD_CAPTURE_ENV"]) == (
        "1",
        "1",
        "A,B",
    )
    again = child_environment(config, inner, "R", workplace.folder)
    assert again["PYTHONPATH"] == inner["PYTHONPATH"], "a run inside a run adds no second entry"


def test_a_run_joins_the_one_its_job_names(workplace: Workplace) -> None:
    environment = {"COMPILEBOARD_HOME": str(workplace.home), "COMPILEBOARD_RUN_ID": "SHARED"}
    folders = [
        prepare(["x"], RunConfig(database="team.db"), environment, str(workplace.folder))[0]
        for _ in range(2)
    ]
    assert len(set(folders)) == 2
    assert {read_manifest(folder).run_id for folder in folders} == {"SHARED"}


def test_a_damaged_manifest_is_named_and_costs_the_others_nothing(workplace: Workplace) -> None:
    spools = workplace.home / "spool"
    for name, text in (("bad", "{half"), ("begun", None)):
        (spools / name).mkdir(parents=True)
        if text:
            (spools / name / "run.json").write_text(text)
    good = Manifest(
        run_id="R",
        database=str(workplace.database),
        name="good",
        started_us=5,
        recorder_process_id="r",
    )
    good.write(make(spools / "good"))
    report = recover_spools({"COMPILEBOARD_HOME": str(workplace.home)})
    assert ([text.partition(":")[0] for text in report.set_aside], report.problems) == (["bad"], [])
    assert workplace.only_run()["state"] == "interrupted"
    assert [path.name for path in spools.iterdir()] == ["begun"]


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_signal_is_named_or_numbered() -> None:
    assert signal_name(signal.SIGTERM) == "SIGTERM"
    assert signal_name(60) == "signal 60"


def test_a_torchs_own_registry_fills_in_what_ours_lacks(tmp_path: Path) -> None:
    table = {"GB7777": [{"Gb_type": "A type of next year", "Explanation": "why", "Hints": ["do"]}]}
    (tmp_path / "registry.json").write_text(json.dumps(table))
    assert break_registry.ids_of_type("A type of next year") == ()
    break_registry.load_registry(str(tmp_path / "registry.json"))
    break_registry.load_registry(str(tmp_path / "none.json"))
    assert break_registry.ids_of_type("A type of next year") == ("GB7777",)
    entry = break_registry.lookup("gb7777")
    assert entry is not None
    assert (entry.explanation, entry.hints) == ("why", ("do",))
    break_registry._learnt.clear()


def test_without_source_a_shell_line_gives_the_run_no_name() -> None:
    command = ["bash", "-c", "cd /x && python /x/a.py"]
    assert default_name(stored_command(command, keep_source=True)) == "a.py"
    assert default_name(stored_command(command, keep_source=False)) == "bash"


@pytest.mark.parametrize(
    ("given", "joined"),
    [
        ("01jd0000000000000000000abc", "01JD0000000000000000000ABC"),
        ("01JD0000000000000000000ABC", "01JD0000000000000000000ABC"),
        ("nightly-7", "nightly-7"),
        ("91jd0000000000000000000abc", "91jd0000000000000000000abc"),
    ],
)
def test_a_shared_id_that_is_a_ulid_is_one_in_either_case(given: str, joined: str) -> None:
    assert joined_run_id({"COMPILEBOARD_RUN_ID": given}) == joined
