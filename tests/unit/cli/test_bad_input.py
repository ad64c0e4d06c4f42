"""Bad input gets one clear message and the right exit code, and costs nothing that was recorded."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.cli.main import main
from compileboard.collectors.record.facts import unreachable
from compileboard.collectors.store.migrations import migrate
from tests.tools.observed import Workplace

TRUE = (sys.executable, "-c", "print('ran')")


def list_messages(done: Any) -> list[str]:
    """Return our own lines; each starts with our name, and there is no traceback."""
    assert "Traceback" not in done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("compileboard: ")]


def test_an_unknown_run_and_an_ambiguous_one(workplace: Workplace) -> None:
    for _ in range(2):
        workplace.run(*TRUE)
    unknown = workplace.collect("show", "ZZZ", "--db", workplace.database)
    assert (unknown.returncode, len(list_messages(unknown))) == (2, 1)
    assert "there is no run 'ZZZ'" in unknown.stderr
    prefix = workplace.rows("select min(id) as id from runs")[0]["id"][:4]
    both = workplace.collect("show", prefix.lower(), "--db", workplace.database)
    assert (both.returncode, len(list_messages(both))) == (2, 1)
    assert "fits several runs; give more of the id" in both.stderr


@pytest.mark.parametrize("command", ["list", "show X"])
def test_a_missing_database_is_named_and_not_made(workplace: Workplace, command: str) -> None:
    done = workplace.collect(*command.split(), "--db", workplace.database)
    assert done.returncode == 2
    assert (
        f"There is no database at {workplace.database}. Record a run first: "
        in list_messages(done)[0]
    )
    assert list_messages(done)[0].endswith(
        f"-m compileboard.collectors run --db {workplace.database} -- python train.py"
    )
    assert not workplace.database.exists()


def spoil(database: Path, how: str) -> None:
    if how == "text":
        database.write_text("this is no database\n" * 50)
    elif how == "folder":
        database.mkdir()
    elif how == "theirs":
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("create table theirs (x)")
    elif how == "newer":
        migrate(database)
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("pragma user_version = 99")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("text", "is not a CompileBoard database"),
        ("folder", "is a folder; --db expects a file"),
        ("theirs", "SQLite database of another program"),
        ("newer", "has database version 99"),
    ],
)
def test_a_file_that_is_no_database_is_refused_before_the_program_starts(
    workplace: Workplace, how: str, words: str
) -> None:
    spoil(workplace.database, how)
    done = workplace.run(*TRUE)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = list_messages(done)
    assert words in line
    assert [*workplace.spools, *(workplace.home / "set-aside").glob("*")] == []


def test_a_folder_that_is_not_there(workplace: Workplace) -> None:
    database = workplace.folder / "no" / "t.db"
    done = workplace.collect("run", "--db", database, "--", *TRUE)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Check that its folder exists" in done.stderr
    assert done.stderr.count(str(database)) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_file_and_folder(workplace: Workplace) -> None:
    migrate(workplace.database)
    workplace.database.chmod(0o444)
    done = workplace.run(*TRUE)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be written" in done.stderr


def test_a_home_that_cannot_be_made(workplace: Workplace) -> None:
    (workplace.folder / "file").write_text("")
    done = workplace.run(*TRUE, env={"COMPILEBOARD_HOME": str(workplace.folder / "file")})
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "this run is not recorded: " in done.stderr and "Set COMPILEBOARD_HOME" in done.stderr
    assert len(list_messages(done)) == 1


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["no-such-program"], 127, "there is no program 'no-such-program'"),
        (["./notes.txt"], 126, "'./notes.txt' is not executable"),
        (["/"], 126, "'/' is not executable"),
    ],
)
def test_a_program_that_cannot_be_started(
    workplace: Workplace, command: list[str], code: int, words: str
) -> None:
    workplace.write("no program", "notes.txt")
    done = workplace.run(*command)
    assert done.returncode == code
    assert words in done.stderr
    assert len(list_messages(done)) == 1
    assert not workplace.database.exists(), "a program that never ran leaves no run"
    assert workplace.spools == []


def test_a_program_whose_interpreter_is_not_there_is_found_out_by_exec_alone(
    workplace: Workplace,
) -> None:
    workplace.write("#!/no/such/interpreter\n", "script").chmod(0o755)
    done = workplace.run("./script")
    assert done.returncode == 127
    assert "or not the interpreter it names" in done.stderr
    assert workplace.only_run()["exit_code"] == 127


@pytest.mark.sampled(3)
@pytest.mark.parametrize("given", ["../../evil", ".", "a b", "-x", "x" * 65, "a/b", "01\n"])
def test_an_id_for_a_shared_run_that_is_none_is_said_and_not_used(
    workplace: Workplace, given: str
) -> None:
    done = workplace.run(*TRUE, env={"COMPILEBOARD_RUN_ID": given}, options=("--quiet",))
    assert (done.returncode, done.stdout) == (0, "ran\n")
    (line,) = list_messages(done)
    assert "COMPILEBOARD_RUN_ID is " in line and "the run has an id of its own" in line
    assert (workplace.spools, (workplace.folder / "evil").exists()) == ([], False)
    assert workplace.value("select id from runs") not in (given, "")
    assert workplace.value("select kind from run_rejects") == "bad_fact"


def test_a_shared_run_is_found_by_its_id_and_by_its_beginning(workplace: Workplace) -> None:
    for name in ("nightly-4", "nightly-42"):
        done = workplace.run(*TRUE, env={"COMPILEBOARD_RUN_ID": name})
        assert "is not in" not in done.stderr
    for given, run_id in (("nightly-4", "nightly-4"), ("nightly-42", "nightly-42")):
        assert workplace.collect("show", given, "--db", workplace.database).stdout.startswith(
            f"run {run_id}  "
        )
    assert workplace.collect("show", "nightly", "--db", workplace.database).returncode == 2
    assert workplace.collect("show", "NIGHTLY-42", "--db", workplace.database).returncode == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "no command to run; write it after `--`"),
        (["run", "--tag", "novalue", "--", "true"], "expected KEY=VALUE, got 'novalue'"),
        (["run", "--tag", "=x", "--", "true"], "expected KEY=VALUE, got '=x'"),
        (["run", "--level", "full", "--no-source", "--", "true"], "cannot go with --no-source"),
        (["run", "--level", "much", "--", "true"], "invalid choice: 'much'"),
        (["list", "--limit", "0"], "expected a number from 1 up, got '0'"),
        (["dance"], "invalid choice: 'dance'"),
    ],
)
def test_wrong_usage_says_what_was_expected(arguments: list[str], words: str, capsys: Any) -> None:
    try:
        code: Any = main(arguments)
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "letter"),
    [
        (["python", "-I", "x.py"], "I"),
        (["python3.11", "-S", "-c", "pass"], "S"),
        (["/usr/bin/python3", "-uE", "x.py"], "E"),
        (["python", "-W", "error", "-X", "dev", "-I", "-m", "x"], "I"),
        (["python", "-u", "x.py", "-I"], None),
        (["python", "-c", "print(1)", "-S"], None),
        (["python", "-m", "train", "-E"], None),
        (["bash", "-I"], None),
        (["python"], None),
    ],
)
def test_a_switch_that_keeps_us_out_is_said(command: list[str], letter: str | None) -> None:
    warnings = unreachable(command)
    assert [f"python -{letter}" in warnings[0]] == [True] if letter else warnings == []


def test_doctor_without_torch_and_with_one_too_old(workplace: Workplace) -> None:
    workplace.write("", "empty/nothing.py")
    old = workplace.folder / "old"
    workplace.write("raise ImportError('too old to load')\n", "old/torch/__init__.py")
    workplace.write(
        "Metadata-Version: 2.1\nName: torch\nVersion: 1.13.1\n",
        "old/torch-1.13.1.dist-info/METADATA",
    )
    path = os.pathsep.join([str(old), workplace.environ()["PYTHONPATH"]])
    done = workplace.collect("doctor", "--db", workplace.database, env={"PYTHONPATH": path})
    assert done.returncode == 1
    assert "1.13.1 is too old; CompileBoard records torch 2.4 and newer" in done.stdout
    hide = "import sys; sys.modules['torch'] = None\n"
    hide += "from compileboard.collectors.cli.main import main; sys.exit(main(['doctor']))"
    absent = workplace.plain(sys.executable, "-c", hide)
    assert absent.returncode == 1
    assert "is not installed for this python" in absent.stdout


def test_install_without_torch_says_so(workplace: Workplace) -> None:
    text = "import sys; sys.modules['torch'] = None; import compileboard; compileboard.install()"
    done = workplace.plain(sys.executable, "-c", text)
    assert done.returncode == 1
    assert "CompileBoard records torch.compile (torch 2.4 or newer)" in done.stderr.splitlines()[-1]


def test_list_into_a_closed_pipe_ends_quietly(workplace: Workplace) -> None:
    workplace.run(*TRUE)
    line = (
        f"{sys.executable} -m compileboard.collectors list --db {workplace.database} | true; "
        f"echo ${{PIPESTATUS[0]}}"
    )
    done = workplace.plain("bash", "-c", line)
    assert "Traceback" not in done.stderr


def test_push_refuses_limits_of_what_it_sends_whole(
    workplace: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    migrate(str(workplace.database))
    words = ["push", "--server", "http://127.0.0.1:1", "--limit-rows", "1"]
    for paths, text in (
        ([str(workplace.database)], "is a database or spool"),
        ([], "no PATH is given"),
    ):
        assert main([*words, *paths]) == 2
        error = capsys.readouterr().err
        assert "--limit-rows: the limits are on logs" in error and text in error
