"""The same exit codes in all commands of both command lines, and one table of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compileboard import exit_codes
from compileboard.app.cli.main import main as dashboard
from compileboard.collectors.cli.main import main as collect
from compileboard.collectors.store.migrations import migrate

DOCS = Path(__file__).resolve().parents[3] / "docs"
READING = {
    dashboard: (
        ["export", "--run", "latest", "--format", "json", "--output", "-"],
        ["report", "--folder", "reports"],
        ["check"],
        ["baseline", "list"],
        ["alerts", "list"],
        ["incidents", "list"],
        ["follow"],
        ["trash", "list"],
        ["audit"],
    ),
    collect: (["list"], ["show", "X"], ["index"], ["try", "X", "--fix", "1"]),
}
NAMING = {
    dashboard: (
        ["export", "--run", "NOPE", "--format", "json", "--output", "-"],
        ["check", "--run", "NOPE"],
        ["baseline", "save", "new", "--run", "NOPE"],
        ["baseline", "show", "nope"],
        ["incidents", "show", "nope"],
        ["incidents", "comment", "nope", "--author", "Ada", "--text", "seen"],
        ["trash", "delete", "NOPE"],
        ["trash", "restore", "NOPE"],
        ["alerts", "list", "--rule", "nope"],
    ),
    collect: (
        ["show", "NOPE"],
        ["index", "NOPE"],
        ["retry", "NOPE"],
        ["try", "NOPE", "--fix", "1"],
    ),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMPILEBOARD_HOME", str(tmp_path / "home"))


def list_cases(commands: object) -> list[object]:
    assert isinstance(commands, dict)
    return [
        pytest.param(main, words, id=" ".join(words[:3]))
        for main in commands
        for words in commands[main]
    ]


@pytest.mark.parametrize(("main", "words"), list_cases(READING))
def test_a_database_that_is_not_there_is_2(main: object, words: list[str]) -> None:
    assert callable(main)
    assert main([*words, "--db", "none.db"]) == exit_codes.REFUSED


@pytest.mark.parametrize("words", [["serve"], ["migrate"], ["audit"], ["trash", "list"]])
def test_a_file_that_is_no_database_is_2(words: list[str]) -> None:
    Path("text.db").write_text("this is a text, and no database at all; " * 99)
    assert dashboard([*words, "--db", "text.db"]) == exit_codes.REFUSED


@pytest.mark.parametrize(("main", "words"), list_cases(NAMING))
def test_what_is_not_in_the_database_is_2(main: object, words: list[str]) -> None:
    assert callable(main)
    migrate("here.db")
    options = [] if words[0] == "retry" else ["--db", "here.db"]
    assert main([*words, *options]) == exit_codes.REFUSED


def test_the_table_has_every_code_and_no_other() -> None:
    table = (DOCS / "exit-codes.md").read_text(encoding="utf-8").partition("| command |")[0]
    listed = {
        int(code)
        for row in re.findall(r"^\| ([\d, ]+) \|", table, re.M)
        for code in row.split(", ")
    }
    assert listed == {value for name, value in vars(exit_codes).items() if name.isupper()}
