"""A patch is applied to copies, exactly or not at all; the user's files stay byte for byte."""

import pytest

from compileboard.collectors.fixes.fix import LineEdit
from compileboard.collectors.trials.patches import CannotTry, apply_edits, apply_patch, join_diffs

TEXT = "import torch\n\ndef f(x):\n    print(x)\n    return x + 1\n"
PATCH = """\
--- a/train.py
+++ b/train.py
@@ -3,3 +3,2 @@
 def f(x):
-    print(x)
     return x + 1
"""


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "project"
    (root / "models").mkdir(parents=True)
    (root / "train.py").write_text(TEXT)
    (root / "models" / "net.py").write_text(TEXT)
    return root


def test_a_patch_changes_the_copy_alone(root, tmp_path):
    (file,) = apply_patch(PATCH, [root], tmp_path / "trial")
    assert file.copy.read_text() == TEXT.replace("    print(x)\n", "")
    assert (root / "train.py").read_text() == TEXT
    assert "-    print(x)\n" in join_diffs([file])


def test_a_patch_of_several_files_and_without_prefixes(root, tmp_path):
    both = PATCH.replace("a/", "").replace("b/", "") + PATCH.replace(
        "a/train.py", "models/net.py"
    ).replace("b/train.py", "models/net.py")
    files = apply_patch(both, [tmp_path, root], tmp_path / "trial")
    assert sorted(file.name for file in files) == ["models/net.py", "train.py"]
    assert all("print" not in file.copy.read_text() for file in files)


def test_a_patch_that_does_not_fit_is_refused_with_what_was_expected(root, tmp_path):
    (root / "train.py").write_text(TEXT.replace("print(x)", "print(x, 2)"))
    with pytest.raises(
        CannotTry, match=r"does not fit the files in .*project as they are now(?s:.*)print\(x\)"
    ):
        apply_patch(PATCH, [root], tmp_path / "trial")


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("", "empty"),
        ("hello\n", "No valid patches"),
        (PATCH.replace("train.py", "absent.py"), r"no file absent\.py in"),
        (
            PATCH.replace("a/train.py", "a/../x.py").replace("b/train.py", "b/../x.py"),
            r"cannot be used: .*\.\./x\.py",
        ),
        ("--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x = 1\n", "adds, deletes or renames"),
    ],
)
def test_patches_that_are_none(root, tmp_path, patch, message):
    with pytest.raises(CannotTry, match=message):
        apply_patch(patch, [root], tmp_path / "trial")


def test_a_link_out_of_the_project_is_no_file_of_it(root, tmp_path):
    (tmp_path / "outside.py").write_text(TEXT)
    (root / "link.py").symlink_to(tmp_path / "outside.py")
    with pytest.raises(CannotTry, match=r"no file link\.py"):
        apply_patch(PATCH.replace("train.py", "link.py"), [root], tmp_path / "trial")


def test_edits_replace_and_remove_lines(root, tmp_path):
    edits = [
        LineEdit("train.py", 4, 1, ()),
        LineEdit("train.py", 5, 1, ("    y = x + 1", "    return y")),
    ]
    (file,) = apply_edits(edits, {("train.py", 4): "print(x)"}, [root], tmp_path / "trial")
    assert file.copy.read_text() == "import torch\n\ndef f(x):\n    y = x + 1\n    return y\n"


def test_an_edit_of_a_line_that_has_changed_is_refused(root, tmp_path):
    with pytest.raises(
        CannotTry, match=r"line 4 is 'print\(x\)', expected 'print\(y\)'. Record the program again"
    ):
        apply_edits(
            [LineEdit("train.py", 4, 1, ())],
            {("train.py", 4): "print(y)"},
            [root],
            tmp_path / "trial",
        )


def test_an_edit_past_the_end_is_refused(root, tmp_path):
    with pytest.raises(CannotTry, match="line 99 is not there"):
        apply_edits([LineEdit("train.py", 99, 1, ())], {}, [root], tmp_path / "trial")
