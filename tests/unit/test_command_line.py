"""What both command lines are built from: loading a command when it is called, exclusion,
completion, exit codes.
"""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from compileboard.app.cli.main import main as app
from compileboard.collectors.cli.main import main as collect
from compileboard.command_line import Command, Group, Option, run_group
from compileboard.exit_codes import REFUSED
from tests.tools.observed import Workplace


def complete(program: str, words: str) -> list[str]:
    """Ask a command line as the shell's function does; the last word is completed."""
    module = {"compileboard": "app", "compileboard-collect": "collectors"}[program]
    code = f"import sys; from compileboard.{module}.cli.main import main\ntry:\n    main()\n"
    code += (
        "finally:\n    print(*(name for name in sys.modules if '.cli.' in name or name == "
        "'pandas'), file=sys.stderr)"
    )
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    given = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), variable: "bash_complete"}
    code = f"import sys; sys.argv[0] = '/usr/bin/{program}'\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = [name for name in done.stderr.split() if not name.endswith((".main", ".common"))]
    return [*(line.split(",")[1] for line in done.stdout.splitlines()), *loaded]


def test_completing_a_command_imports_none() -> None:
    assert complete("compileboard", "compileboard a") == ["alerts", "audit"]
    assert complete("compileboard-collect", "compileboard-collect re") == ["retry", "repro"]


def test_options_and_choices_are_completed() -> None:
    assert (
        complete("compileboard-collect", "compileboard-collect bench --compile-")[0]
        == "--compile-repeats"
    )
    assert complete("compileboard-collect", "compileboard-collect bench --level f")[0] == "full"


@pytest.mark.parametrize(
    ("main", "words", "first", "second"),
    [
        (app, ["export", "--run", "A", "--site", "B"], "--run", "--site"),
        (app, ["check", "--static", "--dynamic"], "--static", "--dynamic"),
        (collect, ["bench", "--inference", "--training"], "--inference", "--training"),
        (collect, ["bench", "--amp", "--float32", "--amp"], "--amp", "--float32"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    main: object, words: list[str], first: str, second: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(main) and main(words) == 2
    assert f"argument {second}: not allowed with argument {first}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("main", "words"), [(app, ["export", "--run"]), (collect, ["run", "--name"])]
)
def test_an_option_without_its_value_is_refused_with_the_commands_usage(
    main: object, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(main) and main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Usage: ") and f" {words[0]} [OPTIONS]" in lines[0]
    assert lines[-1] == f"Error: Option '{words[1]}' requires an argument."


@pytest.mark.parametrize(
    ("main", "words", "suggested"),
    [
        (collect, ["bench", "--xla"], None),
        (collect, ["bench", "--ranks"], None),
        (collect, ["bench", "--epochs"], None),
        (collect, ["bench", "--perfomance"], "--performance"),
        (collect, ["bench", "--ouput"], "--output"),
        (collect, ["run", "--levle"], "--level"),
        (app, ["serve", "--prot"], "--port"),
    ],
)
def test_an_unknown_option_suggests_only_what_is_near_it(
    main: object, words: list[str], suggested: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(main) and main(words) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    suggestion = f" Did you mean '{suggested}'?" if suggested else ""
    assert error == f"Error: No such option '{words[1]}'.{suggestion}"


@pytest.mark.parametrize("dashes", [["--"], []])
def test_run_leaves_the_commands_own_words_alone(workplace: Workplace, dashes: list[str]) -> None:
    words = ["--help", "--db", "x", "-h", "--", "--level", "much", "--"]
    program = [sys.executable, "-c", "import sys; print(sys.argv[1:])", *words]
    done = workplace.collect("run", "--quiet", "--db", workplace.database, *dashes, *program)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{words}\n", "")


def test_an_error_is_explained_with_the_commands_database() -> None:
    seen: list[tuple[str, str | None]] = []

    def explain(error: Exception, database: str | None) -> bool:
        seen.append((str(error), database))
        return isinstance(error, ValueError)

    @click.group(cls=Group, explain=explain)
    def group() -> None:
        """Several."""

    @group.command(cls=Command)
    @click.option("--db", cls=Option)
    @click.argument("text")
    def failing(db: str, text: str) -> None:
        raise {"value": ValueError, "key": KeyError}[text](text)

    assert run_group(group, ["failing", "--db", "a.db", "value"], "prog") == REFUSED
    with pytest.raises(KeyError):
        run_group(group, ["failing", "key"], "prog")
    assert seen == [("value", "a.db"), ("'key'", None)]
