"""Annotations, changed lines, rules files: what reaches GitHub, and what text cannot."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.checks.decision import Check, CheckedRule
from compileboard.app.checks.github_annotations import (
    MOST,
    ChangedLines,
    format_annotations,
    format_command,
    list_annotations,
    list_changed_lines,
    parse_diff,
)
from compileboard.app.checks.model import Verdict
from compileboard.app.checks.rules.counts import NEW_BREAKS, NEW_RECOMPILES
from compileboard.app.cli.main import main
from compileboard.app.comparison.queries import DistinctItem
from tests.tools.repository import commit, git, make_repository

NAMES = st.text(
    st.characters(exclude_characters='/\\"\t\n\r\0', exclude_categories=["C", "Z"]),
    min_size=1,
    max_size=8,
)


def make_report(*items: DistinctItem) -> Check:
    def judge(rule, new):
        return CheckedRule(
            rule, tuple(Verdict("m", "NEW", "fail", True, "", rule.name, item) for item in new)
        )

    breaks = [item for item in items if (item.kind or "").startswith("GB")]
    causes = [item for item in items if item not in breaks]
    rules = (judge(NEW_RECOMPILES, causes), judge(NEW_BREAKS, breaks))
    return Check("run A", "run B", rules, ())


def make_break(
    file: str, line: int, count: int = 1, model: str | None = "m", **changes: str
) -> DistinctItem:
    kind = changes.pop("kind", "GB0036")
    return DistinctItem(
        f"{file}:{line}", kind, "Dynamic shape operator", "f", file, line, count, model
    )


@pytest.mark.parametrize(
    ("breaks", "word", "exit_code"), [(1, "FAIL: 1 verdict ", 1), (0, "NOT COMPARED: ", 2)]
)
def test_a_rule_that_could_not_look_hides_no_failure(
    breaks: int, word: str, exit_code: int
) -> None:
    report = make_report(*(make_break("a.py", line) for line in range(breaks)))
    due = CheckedRule(NEW_RECOMPILES, (), "no causes were recorded", is_due=True)
    report = replace(report, rules=(due, *report.rules))
    assert report.headline.startswith(word) and report.exit_code == exit_code


def test_the_worst_come_first_and_what_github_hides_is_counted(tmp_path: Path) -> None:
    changed = ChangedLines(tmp_path, {"nets/a.py": [range(1, 30)]})
    items = [make_break("nets/a.py", line, line) for line in range(1, 13)]
    other = [
        make_break("nets/a.py", 40, 99),
        make_break("nets/b.py", 3, 99),
    ]  # of lines that nobody changed
    cause = make_break("nets/a.py", 20, 500, kind="tensor_size")
    report = make_report(*other, cause, *items)
    rows = list_annotations(report, changed, str(tmp_path / "nets"), {}, "this PR")
    assert [(row.file, row.line) for row in rows] == [
        *(("a.py", line) for line in range(12, 0, -1)),
        ("a.py", 20),
    ]
    lines = list(format_annotations(rows))
    assert (
        len(lines) == MOST + 1
        and lines[-1] == "::notice title=CompileBoard::3 more are in the job summary"
    )
    assert lines[0].startswith(
        "::warning file=a.py,line=12,title=1 graph break added::this PR adds 1 graph break at "
    )


def test_a_run_in_a_folder_names_its_files_from_there(tmp_path: Path) -> None:
    ranges = {"sub/a.py": [range(3, 4)], "a.py": [range(1, 9)]}
    changed = ChangedLines(tmp_path, ranges, "sub")
    items = [make_break("a.py", 3), make_break("a.py", 5), make_break("sub/a.py", 3)]
    [row] = list_annotations(make_report(*items), changed, str(tmp_path), {}, "this PR")
    assert (row.file, row.line) == ("sub/a.py", 3) and "at sub/a.py:3" in row.message
    assert ChangedLines(tmp_path, ranges).find("a.py", 5) == "a.py"


def test_models_that_share_a_line_have_one_annotation(tmp_path: Path) -> None:
    changed = ChangedLines(tmp_path, {"a.py": [range(7, 8)]})
    [row] = list_annotations(
        make_report(make_break("a.py", 7, 2, "cnn"), make_break("a.py", 7, 3, "mlp")),
        changed,
        str(tmp_path),
        {},
        "this PR",
    )
    assert row.message.splitlines() == [
        "this PR adds 1 graph break at a.py:7",
        "cnn: GB0036: Dynamic shape operator at a.py:7 in f, 2 times",
        "mlp: GB0036: Dynamic shape operator at a.py:7 in f, 3 times",
    ]


@given(st.text(), st.text())
def test_a_command_is_one_line_and_says_what_it_was_told(message: str, file: str) -> None:
    line = format_command("warning", message, file=file, line=3)
    assert line.splitlines() == [line]
    told = re.fullmatch(r"::warning file=([^:,\n]*),line=3::(.*)", line)
    assert told is not None

    def read(text: str) -> str:
        for code, letter in (
            ("%2C", ","),
            ("%3A", ":"),
            ("%0A", "\n"),
            ("%0D", "\r"),
            ("%25", "%"),
        ):
            text = text.replace(code, letter)
        return text

    def clean(text: str) -> str:
        return "".join(
            letter if letter.isprintable() or letter in "\r\n" else " " for letter in text
        )

    assert (read(told[1]), read(told[2])) == (clean(file), clean(message))


def test_changed_lines_are_those_of_the_checkout_since_the_commit_in_common(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "r", "one")
    (folder / "a b.py").write_text("1\n2\n3\n4\n")
    (folder / "gone.py").write_text("1\n")
    odd = 'q"\\\n.py'
    (folder / odd).write_text("1\n")
    git(folder, "add", ".")
    before = commit(folder, "two")
    git(folder, "checkout", "-q", "-b", "change")
    (folder / "a b.py").write_text("1\n++ b/x.py\n-- y\n3\n4\n@@ -1 +1 @@\n")
    (folder / odd).write_text("1\n2\n")
    git(folder, "rm", "-q", "gone.py")
    git(folder, "add", ".")
    commit(folder, "three")
    git(folder, "checkout", "-q", "main")
    (folder / "gone.py").write_text("1\n2\n")
    git(folder, "add", ".")
    base = commit(folder, "main goes on")
    git(folder, "checkout", "-q", "change")
    changed = list_changed_lines(str(folder), base)
    assert {
        file: [line for lines in ranges for line in lines]
        for file, ranges in changed.ranges.items()
    } == {
        "a b.py": [2, 3, 6],
        odd: [2],
    }
    assert before != base and changed.root == folder.resolve()
    with pytest.raises(ValueError, match="cannot tell what changed since 0000000"):
        list_changed_lines(str(folder), "0" * 40)


@given(
    st.dictionaries(
        NAMES, st.lists(st.tuples(st.integers(1, 500), st.integers(0, 9), st.integers(0, 9)))
    )
)
def test_a_diff_is_read_back(hunks_by_file: dict[str, list[tuple[int, int, int]]]) -> None:
    lines: list[str] = []
    for name, hunks in hunks_by_file.items():
        lines += [f"diff --git a/{name} b/{name}", f"--- a/{name}", f"+++ b/{name}"]
        for first, old, new in hunks:
            lines += [f"@@ -{first},{old} +{first},{new} @@ def f():"]
            lines += ["---- a/c.py"] * old + ["++++ b/d.py"] * new
    expected = {
        name: [range(first, first + new) for first, _old, new in hunks if new]
        for name, hunks in hunks_by_file.items()
        if any(new for _first, _old, new in hunks)
    }
    assert parse_diff("\n".join(lines)) == expected


@given(st.text())
def test_any_text_is_a_diff_of_something(text: str) -> None:
    assert isinstance(parse_diff(text), dict)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rule = [", "expected TOML"),
        ('baseline = "main"', "there is no rule option 'baseline'; known: rule, suite"),
        ('allow-improvement = "yes"', "allow-improvement is 'yes'; expected true or false"),
        ("tolerance = [1, 2]", "tolerance is '[1, 2]'; expected a text or a number"),
        ("tolerance = -1", "'-1' is not a finite number above 0"),
        ("rule = [true]", "rule is '[True]'; expected a text, a number or a list of them"),
    ],
)
def test_a_rules_file_is_refused_by_file_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, sentence: str
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    assert main(["check", "--rules", str(path), "--list-rules"]) == 2
    assert sentence in capsys.readouterr().err
    assert main(["check", "--rules", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: No such file or directory" in capsys.readouterr().err
