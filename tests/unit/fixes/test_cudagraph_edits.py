"""Fixes for CUDA graphs, written into the programs of the catalogue and others."""

from __future__ import annotations

import ast

import pytest

from compileboard.collectors.fixes import cudagraph_edits as edits
from compileboard.collectors.fixes.fix import LineEdit, find_fix


def apply(text: str, changes: tuple[LineEdit, ...]) -> str:
    lines = text.splitlines()
    for edit in sorted(changes, key=lambda edit: -edit.line):
        lines[edit.line - 1 : edit.line - 1 + edit.line_count] = edit.replacement
    return "\n".join(lines) + "\n"


def line_of(text: str, part: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), start=1) if part in line)


def find(text: str, part: str, function: str | None = None) -> tuple[edits.SourceFile, ast.Call]:
    source = edits.SourceFile.parse("a.py", text)
    assert source is not None
    call = source.find_call(line_of(text, part), function)
    assert call is not None
    return source, call


def test_a_step_is_marked_before_the_call_and_its_result_cloned() -> None:
    fix = find_fix("cudagraph", "step_marked")
    source, call = find(fix.before, "kept.append(")
    assert apply(fix.before, edits.clone_result(source, call, marks_step=True)) == fix.after


def test_the_only_argument_of_a_call_is_cloned() -> None:
    fix = find_fix("cudagraph", "passed_clone")
    source, call = find(fix.before, "norm(made")
    assert apply(fix.before, edits.clone_argument(source, call)) == fix.after
    source, call = find("f = torch.compile(g)\ny = f(a + b)\n", "y =")
    assert edits.clone_argument(source, call)[0].replacement == ("y = f((a + b).clone())",)
    source, call = find("f = torch.compile(g)\ny = f(a, b)\n", "y =")
    assert edits.clone_argument(source, call) == ()


def test_a_change_is_returned() -> None:
    fix = find_fix("cudagraph", "mutation_returned")
    source = edits.SourceFile.parse("a.py", fix.before)
    assert source is not None
    assert apply(fix.before, edits.return_change(source, line_of(fix.before, "x +="))) == fix.after


@pytest.mark.parametrize(
    ("line", "changed", "returned"),
    [
        ("x.add_(1)", "x", "x = x.add(1)"),
        ("x *= y + 1", "x", "x = x * (y + 1)"),
        ("x[0] = 1", "x", None),
        ("x.total += 1", "x.total", None),
        ("x = x + 1", None, None),
        ("x.add(1)", None, None),
        ("x.__init__()", None, None),
        ("x[0].add_(1)", "x", None),
    ],
)
def test_what_a_line_changes(line: str, changed: str | None, returned: str | None) -> None:
    source = edits.SourceFile.parse("a.py", f"{line}\n")
    assert source is not None
    found = edits.find_change(source, 1)
    assert (ast.unparse(found) if found else None) == changed
    written = [edit.replacement[0] for edit in edits.return_change(source, 1)]
    assert written == ([returned] if returned else [])


def test_the_tensor_that_is_passed_is_marked_static() -> None:
    text = find_fix("cudagraph", "mutation_static").before
    source, call = find(text, "result.append(", "decode")
    change = line_of(text, "index_copy_")
    changed, function = edits.find_change(source, change), edits.find_function(source, change)
    assert changed is not None
    (edit,) = edits.mark_static(source, call, changed, function)
    assert [line.strip() for line in edit.replacement] == [
        "torch._dynamo.mark_static_address(cache)",
        text.splitlines()[edit.line - 1].strip(),
    ]
    made = find("import torch\nf = torch.compile(g)\nf(make())\n", "make")
    assert edits.mark_static(*made, ast.Name("cache"), function) == ()


@pytest.mark.parametrize("line", ["f(x) + f(y)", "g(x)", "(lambda: f)()(x)"])
def test_a_call_that_is_not_the_only_one_is_left_to_a_person(line: str) -> None:
    source = edits.SourceFile.parse("a.py", f"f = torch.compile(h)\n{line}\n")
    assert source is not None and source.find_call(2, "h") is None


def test_a_statement_that_does_not_begin_its_line_has_no_mark() -> None:
    source, call = find("import torch\nf = torch.compile(g)\nif a: y = f(b)\n", "f(b)")
    assert edits.clone_result(source, call, marks_step=True) == ()
    assert edits.clone_result(source, call)[0].replacement == ("if a: y = f(b).clone()",)
