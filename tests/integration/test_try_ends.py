"""How `try` ends: refused, failed with the fix, not reached, or interrupted."""

from __future__ import annotations

import difflib
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.tools.observed import ROOT, Workplace

PROGRAM = """\
import sys

import helper

print("value", helper.value(), sys.argv[1:])
"""
HELPER = "def value():\n    return 1.5\n"
LIST = ("try", "--patch", "-", "--json", "--db")


@pytest.fixture
def run(workplace: Workplace) -> str:
    """Record a program without torch: how a trial ends does not depend on it."""
    workplace.write(HELPER, "helper.py")
    workplace.write("x = 1\n", "other.py")
    assert workplace.run(workplace.write(PROGRAM), "--epochs", "2").returncode == 0
    return workplace.only_run()["id"]


def patch(workplace: Workplace, old: str, new: str, name: str = "helper.py") -> str:
    text = (workplace.folder / name).read_text()
    lines = [part.splitlines(keepends=True) for part in (text, text.replace(old, new))]
    return "".join(difflib.unified_diff(*lines, f"a/{name}", f"b/{name}"))


def try_patch(
    workplace: Workplace, run: str, text: str, *options: str
) -> tuple[int, dict[str, Any], str]:
    finished = workplace.collect(*LIST, workplace.database, run, *options, input=text)
    return finished.returncode, json.loads(finished.stdout or "{}"), finished.stderr


def test_a_change_without_effect_is_no_failure(workplace, run):
    code, result, errors = try_patch(workplace, run, patch(workplace, "1.5", "3 / 2"))
    assert (code, result["outcome"], result["summary"]) == (
        0,
        "unchanged",
        "0 breaks → 0, recompiles 0 → 0, output equal",
    )
    assert "nothing was compiled" in errors
    assert result["output"]["text"] == "equal: exit code, 1 printed line"


def test_a_fix_that_breaks_the_program_says_how(workplace, run):
    code, result, _ = try_patch(workplace, run, patch(workplace, "1.5", "1 / 0"))
    assert (code, result["outcome"]) == (1, "failed")
    assert result["failure"] == "ZeroDivisionError: division by zero (exit code 1)"


@pytest.mark.nightly
def test_a_fix_that_prints_something_else_says_what(workplace, run):
    code, result, _ = try_patch(workplace, run, patch(workplace, "1.5", "2.5"))
    assert (code, result["outcome"]) == (1, "different")
    assert (
        "stdout line 1: \"value 1.5 ['--epochs', '2']\" → \"value 2.5" in result["output"]["text"]
    )


def test_a_file_that_the_program_does_not_import_is_no_fix(workplace, run):
    code, result, _ = try_patch(workplace, run, patch(workplace, "1", "2", "other.py"))
    assert (code, result["outcome"]) == (1, "not_applied")
    assert "other.py was not imported by the program" in result["missing"]


@pytest.mark.nightly
def test_another_command_takes_the_place_of_the_recorded_one(workplace, run):
    words = ("--", "python", "program.py", "--epochs", "3")
    _, result, _ = try_patch(workplace, run, patch(workplace, "1.5", "2.5"), *words)
    assert "['--epochs', '3']" in result["output"]["text"]


@pytest.mark.nightly
def test_patched_copies_and_outputs_are_kept_where_asked(workplace, run):
    try_patch(workplace, run, patch(workplace, "1.5", "2.5"), "--keep", "kept")
    folder = workplace.folder / "kept"
    assert "2.5" in (folder / "files" / "helper.py").read_text()
    assert (folder / "fix-1" / "stdout").read_text().startswith("value 2.5")
    assert (folder / "patch.diff").is_file()
    assert (workplace.folder / "helper.py").read_text() == HELPER


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("NOPE", "--patch", "-"), "there is no run 'NOPE'"),
        (
            ("RUN", "--fix", "7"),
            "there is no fix 7; run RUN has no fix that can be tried by itself",
        ),
        (("RUN",), "has no fix that can be tried by itself; try a change of your own: "),
        (("RUN", "--patch", "absent.patch"), "absent.patch cannot be read"),
        (("RUN", "--patch", "-", "--keep", "."), ". is not empty"),
        (("RUN", "--patch", "-", "--fix", "1"), "not allowed with argument"),
        (("RUN", "--patch", "-", "--", "no-such-program"), "there is no program 'no-such-program'"),
    ],
)
def test_what_cannot_be_tried_is_refused(workplace, run, words, message):
    text = patch(workplace, "1.5", "2.5")
    command = [
        "try",
        "--db",
        workplace.database,
        *(run if word == "RUN" else word for word in words),
    ]
    finished = workplace.collect(*command, input=text)
    assert finished.returncode == 2
    assert message.replace("RUN", run) in finished.stderr
    assert (
        workplace.rows("select * from trials")
        == workplace.rows("select * from runs where source = 'trial'")
        == []
    )


def test_a_file_that_was_changed_since_is_refused(workplace, run):
    text = patch(workplace, "1.5", "2.5")
    (workplace.folder / "helper.py").write_text(HELPER.replace("1.5", "1.7"))
    code, _, errors = try_patch(workplace, run, text)
    assert (code, "does not fit" in errors, "return 1.5" in errors) == (2, True, True)


@pytest.mark.nightly
def test_an_imported_log_has_no_command(workplace, run):
    workplace.collect("import", "--db", workplace.database, Path("tests/data/trace").resolve())
    imported = workplace.rows("select id from runs where source = 'import' limit 1")[0]["id"]
    code, _, errors = try_patch(workplace, imported, "x")
    assert (code, "is an imported log, which has no command to run again" in errors) == (2, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_trial_is_recorded_as_one(workplace, run, number):
    program = workplace.folder / "program.py"
    program.write_text(f"{PROGRAM}\nimport time\n\nprint('ready', flush=True)\ntime.sleep(60)\n")
    path = workplace.folder / "fix.patch"
    path.write_text(patch(workplace, "1.5", "2.5"))
    command = [
        "try",
        "--db",
        workplace.database,
        run,
        "--patch",
        path,
        "--keep",
        workplace.folder / "kept",
    ]
    started = workplace.start_command(*command)
    output, deadline_s = workplace.folder / "kept" / "base-1" / "stdout", time.monotonic() + 60
    while time.monotonic() < deadline_s and not (
        output.exists() and b"ready" in output.read_bytes()
    ):
        time.sleep(0.05)
    started.send_signal(number)
    assert started.wait(60) == 130
    assert workplace.rows("select outcome, new_run_id from trials") == [
        {"outcome": "interrupted", "new_run_id": None}
    ]


def test_the_newest_run_of_imports_alone_is_refused_as_what_it_is(workplace):
    capture = ROOT / "tests" / "data" / "captures" / "h200x2-ddp-torch2.11.tar.xz"
    workplace.collect("import", "--db", workplace.database, capture)
    finished = workplace.collect("try", "--db", workplace.database, "latest", "--fix", "1")
    assert finished.returncode == 2
    assert "is an imported log, which has no command to run again" in finished.stderr
