"""Two texts compared: nothing lost, torch's own noise ignored, long texts bounded."""

from __future__ import annotations

import random

import pytest
from flask import Flask, render_template_string
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.artifacts import diff as text_diff
from compileboard.app.artifacts.diff import NOISE, Fold, ShownRow, TextDiff, diff_texts
from tests.unit.app.artifacts.recorded_texts import artifacts

few_lines = st.lists(
    st.sampled_from(["a", "b", "f(x, 1)", "f(x, 2)", "", "at 0x7f", "at 0x80"]), max_size=30
).map("\n".join)
texts = st.one_of(st.text(), few_lines)


def _sides(diff: TextDiff) -> tuple[str, str]:
    left = [row.left_text for row in diff.rows if row.left_text is not None]
    right = [row.right_text for row in diff.rows if row.right_text is not None]
    return "\n".join(left), "\n".join(right)


@given(texts, texts, st.sets(st.sampled_from(sorted(NOISE))))
def test_the_sides_of_a_diff_are_its_texts(old: str, new: str, ignore: set[str]) -> None:
    diff = diff_texts(old, new, ignore=ignore)
    assert _sides(diff) == (old, new)
    assert diff.identical == (old == new)
    assert [row.left_number for row in diff.rows if row.left_number] == list(
        range(1, old.count("\n") + 2)
    )
    assert [row.right_number for row in diff.rows if row.right_number] == list(
        range(1, new.count("\n") + 2)
    )
    assert all(row.left_text == row.right_text for row in diff.rows if row.kind == "same") or ignore


@given(texts, texts)
def test_the_pieces_of_changed_lines_are_their_texts(old: str, new: str) -> None:
    for row, shown in zip(diff_texts(old, new).rows, diff_texts(old, new, context=10**6).parts):
        if isinstance(shown, ShownRow) and row.kind == "changed":
            assert "".join(text for text, _ in shown.left or ()) == row.left_text
            assert "".join(text for text, _ in shown.right or ()) == row.right_text


@given(texts)
def test_a_text_against_itself_is_identical(text: str) -> None:
    diff = diff_texts(text, text)
    assert diff.identical and diff.equivalent
    assert {row.kind for row in diff.rows} == {"same"}
    assert (diff.added_count, diff.removed_count, diff.changed_count) == (0, 0, 0)


def test_a_changed_line_shows_what_changed_in_it() -> None:
    diff = diff_texts('view: "f32[8, 512]" = aten.view(a)', 'view: "f32[s27, 512]" = aten.view(a)')
    (row,) = diff.parts
    assert isinstance(row, ShownRow)
    assert (row.left_sign, row.right_sign) == ("~", "~")
    assert row.left == (('view: "f32[', False), ("8", True), (', 512]" = aten.view(a)', False))
    assert row.right == (('view: "f32[', False), ("s27", True), (', 512]" = aten.view(a)', False))


def test_a_line_put_in_is_added_and_the_rest_folded() -> None:
    old = [f"line {number}" for number in range(100)]
    diff = diff_texts("\n".join(old), "\n".join([*old[:50], "something else", *old[50:]]))
    assert (diff.added_count, diff.removed_count, diff.changed_count) == (1, 0, 0)
    assert [part.count if isinstance(part, Fold) else part.kind for part in diff.parts] == [
        47,
        *["same"] * 3,
        "added",
        *["same"] * 3,
        47,
    ]
    assert isinstance(diff.parts[4], ShownRow) and diff.parts[4].right_number == 51


def test_an_added_line_beside_a_changed_one_is_not_paired_with_it() -> None:
    diff = diff_texts("x\nmul = aten.mul(a, 2)\ny", "x\nimport os\nmul = aten.mul(a, 3)\ny")
    assert [(row.kind, row.left_number, row.right_number) for row in diff.rows][1:3] == [
        ("added", None, 2),
        ("changed", 2, 3),
    ]


def test_a_static_graph_against_a_dynamic_one_differs_in_its_sizes() -> None:
    diff = diff_texts(artifacts()["aot_joint_graph"], artifacts()["aot_joint_graph_dynamic"])
    assert diff.changed_count > 50
    assert diff.coarse_because == ""
    sizes = {
        text
        for row in diff.parts
        if isinstance(row, ShownRow)
        for text, changed in row.right or ()
        if changed
    }
    assert "s27" in sizes


def test_addresses_and_ids_of_objects_can_be_ignored() -> None:
    old, new = artifacts()["dynamo_cpp_guards_str_before"], artifacts()["dynamo_cpp_guards_str"]
    moved = new.replace("10759936", "11223344").replace("140619954544912", "139000000000000")
    assert diff_texts(new, moved).changed_count > 0
    diff = diff_texts(new, moved, ignore=["object ids"])
    assert diff.equivalent and not diff.identical
    assert _sides(diff) == (new, moved)
    assert (
        diff_texts(old, new, ignore=NOISE).changed_count < diff_texts(old, new).changed_count
        or old == new
    )


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("memory addresses", "<function f at 0x7fdd2a0b8d60>", "<function f at 0x7f0000000000>"),
        (
            "object ids",
            "ID_MATCH: ___check_obj_id(G['F'], 140617287617168), type=x",
            "ID_MATCH: ___check_obj_id(G['F'], 94), type=x",
        ),
        ("object ids", "G['__builtins_dict___12']['super']", "G['__builtins_dict___4']['super']"),
        (
            "paths of generated code",
            (
                "# kernel path: "
                "/var/cache/a/5u/c5ub3rjditoakcsv4x4qjqy26esbr254yap56lswr7j23u6f735r.py"
            ),
            "# kernel path: /tmp/t/kt/cktx2q7sgh46vznjio4gwffc3r7732arc3fcmvtemz4gqe4h5d72.py",
        ),
    ],
)
def test_noise_of_a_kind_is_ignored_where_asked(kind: str, old: str, new: str) -> None:
    assert not diff_texts(old, new).equivalent
    assert diff_texts(old, new, ignore=[kind]).equivalent
    assert not diff_texts(old, new + " more", ignore=[kind]).equivalent


def test_an_unknown_kind_of_noise_is_named() -> None:
    with pytest.raises(ValueError, match="ignore: 'dates' is not one of memory addresses"):
        diff_texts("", "", ignore=["dates"])


def test_repetitive_texts_are_compared_coarsely_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_diff, "_GAP_PAIRS", 1000)
    chance = random.Random(7)
    old, new = ("\n".join(chance.choice("ab") for _ in range(500)) for _ in range(2))
    diff = diff_texts(old, new)
    assert "too often" in diff.coarse_because
    assert _sides(diff) == (old, new)


def test_a_page_shows_a_bounded_number_of_rows() -> None:
    old, new = ("\n".join(f"{side}{number}" for number in range(4000)) for side in ("a1", "b2"))
    diff = diff_texts(old, new)
    assert len(diff.parts) == text_diff.SHOWN_LIMIT
    assert diff.hidden_count == len(diff.rows) - text_diff.SHOWN_LIMIT > 0


def test_the_table_says_by_sign_and_word_what_differs(shared_app: Flask) -> None:
    template = (
        '{% import "_macros/code.html" as code with context %}{{ code.diff(diff, "old", "new", '
        'whole="?all=1") }}'
    )
    same = "\n".join(f"line {number}" for number in range(20))
    with shared_app.test_request_context():
        html = render_template_string(
            template, diff=diff_texts(f"<i>\n{same}\nf(1)", f"{same}\nf(2)\n<b>")
        )
        equal = render_template_string(template, diff=diff_texts("a", "a"))
    assert "~ 1 line changed" in html and "+ 1 line added" in html and "− 1 line removed" in html
    assert '<td class="sign">−</td><td class="side">&lt;i&gt;</td>' in html
    assert "<del>1</del>" in html and "<ins>2</ins>" in html
    assert '<a href="?all=1">14 equal lines</a>' in html
    assert "The texts are the same." in equal and "<table" not in equal
