"""The comparison of our files with upstream's harness's own."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness.against_upstream import (
    compare_files,
    compare_wall_times,
    is_within_reach,
    list_rows,
)

THEIRS = """\
dev,name,batch_size,accuracy,graph_breaks,unique_graphs
cpu,resnet18,4,pass,0,1
cpu,lcnet_050,4,pass,2,1
"""


def _write(folder: Path, text: str, *others: str) -> Path:
    folder.mkdir()
    for name in others:
        (folder / name).touch()
    (folder / "a.csv").write_text(text)
    return folder / "a.csv"


def test_equal_files_have_no_difference(tmp_path: Path) -> None:
    sides = (
        _write(tmp_path / name, THEIRS, "a.json", "a_compilation_metrics.csv")
        for name in ("theirs", "ours")
    )
    comparison = compare_files(*sides)
    assert comparison.differences == [] and comparison.equal_count == 10


def test_each_difference_is_named_with_both_values(tmp_path: Path) -> None:
    theirs = _write(tmp_path / "theirs", THEIRS, "a.json")
    ours = _write(
        tmp_path / "ours", THEIRS.replace("lcnet_050,4,pass,2", "lcnet_050,4,fail_accuracy,3")
    )
    assert compare_files(theirs, ours).differences == [
        "lcnet_050 accuracy pass → fail_accuracy",
        "lcnet_050 graph_breaks 2 → 3",
        "a.json is not written",
    ]


def test_columns_and_models_are_compared_in_their_order(tmp_path: Path) -> None:
    theirs = _write(tmp_path / "theirs", "dev,name,speedup\ncpu,a,1.5\n")
    ours = _write(tmp_path / "ours", "dev,name,batch_size,speedup\ncpu,a,4,1.2\ncpu,b,4,1.0\n")
    comparison = compare_files(theirs, ours)
    assert comparison.differences == [
        "columns dev,name,speedup → dev,name,batch_size,speedup",
        "models a → a,b",
    ]
    assert comparison.speedups == {"a": (1.5, 1.2)} and not is_within_reach(1.5, 1.2)
    assert list_rows(comparison)[-1].ratio == "0.800"


def test_a_file_that_is_not_there_is_a_difference(tmp_path: Path) -> None:
    theirs = _write(tmp_path / "theirs", THEIRS)
    assert compare_files(theirs, tmp_path / "a.csv").differences == ["not written"]


def test_wall_times_are_compared_by_model_and_round(tmp_path: Path) -> None:
    for side, times in (("theirs", "a,20.0\na,8.0\n"), ("ours", "a,25.0\na,32.0\n")):
        _write(tmp_path / side, THEIRS).with_name("wall_s.csv").write_text(times)
    rows = compare_wall_times(tmp_path / "theirs", tmp_path / "ours")
    assert [(row.what, row.ours, row.reference, row.ratio) for row in rows] == [
        ("a", "25.0 s", "20.0 s", "1.25"),
        ("a", "32.0 s", "8.0 s", "4.00"),
    ]
