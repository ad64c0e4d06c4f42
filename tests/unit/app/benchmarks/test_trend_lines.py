"""Trends: nothing invented, nothing lost silently, in whatever order runs come."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.benchmarks.trend_lines import (
    EnvironmentChange,
    build_axis,
    describe_run,
    find_changes,
    thin_runs,
    version_sort_key,
)
from compileboard.app.benchmarks.trend_queries import TrendRun

DAY_US = 86_400_000_000
RUN = TrendRun(
    id="R",
    name="nightly",
    state="finished",
    started_us=0,
    git_commit="a" * 40,
    git_branch="main",
    git_subject="Fuse",
    git_dirty=False,
    torch_version="2.9.1+cu128",
    gpu_name="H200",
    driver_version="580.1",
    triton_version="3.5.1",
    python_version=None,
)


def make_runs(count: int, step_us: int = DAY_US) -> list[TrendRun]:
    return [
        replace(RUN, id=f"R{n:04d}", started_us=n * step_us, git_commit=f"{n:040x}")
        for n in range(count)
    ]


@given(order=st.permutations(make_runs(9)), axis=st.sampled_from(["date", "commit", "torch"]))
def test_the_order_of_the_input_does_not_matter(order: list[TrendRun], axis: str) -> None:
    laid = build_axis(order, axis)
    assert [run.id for run in laid.runs] == [f"R{n:04d}" for n in range(9)]
    assert list(laid.positions) == sorted(laid.positions)


@given(count=st.integers(0, 40), most=st.integers(1, 12), hours=st.integers(1, 60))
def test_thinning_keeps_real_runs_the_newest_among_them_and_says_so(
    count: int, most: int, hours: int
) -> None:
    runs = make_runs(count, hours * DAY_US // 24)
    thinned, note = thin_runs(runs, most)
    assert len(thinned) <= max(most, 0)
    assert set(thinned) <= set(runs)
    assert (note is None) == (count <= most)
    assert not runs or thinned[-1] == runs[-1]


def test_versions_of_torch_are_in_the_order_of_their_release() -> None:
    versions = ["2.10.0.dev20260101", "2.9.1+cu128", "2.10.0", "2.9", "2.9.0+cpu", "odd"]
    in_order = ["odd", "2.9", "2.9.0+cpu", "2.9.1+cu128", "2.10.0.dev20260101", "2.10.0"]
    assert sorted(versions, key=version_sort_key) == in_order


def test_on_an_axis_of_versions_an_older_torch_comes_first_though_it_ran_later() -> None:
    runs = [
        replace(RUN, id=version, torch_version=version, started_us=n)
        for n, version in enumerate(("2.10", "2.9"))
    ]
    laid = build_axis([*runs, replace(RUN, id="none", torch_version=None)], "torch")
    assert [label for _place, label in laid.ticks] == ["2.9", "2.10"]
    assert list(laid.notes) == ["1 run has no recorded version of torch"]


def test_runs_of_one_commit_stand_together_where_it_was_first_seen() -> None:
    commits = [("a", 0), ("b", 1), ("a", 2)]
    runs = [
        replace(RUN, id=f"{commit}{at}", git_commit=commit, started_us=at) for commit, at in commits
    ]
    assert [run.id for run in build_axis(runs, "commit").runs] == ["a0", "a2", "b1"]


def test_what_changed_is_said_with_before_and_now_and_a_gap_in_the_record_is_no_change() -> None:
    runs = make_runs(4)
    runs[1] = replace(runs[1], torch_version=None, driver_version=None)
    runs[3] = replace(runs[3], torch_version="2.10.0", gpu_name="B200")
    (change,) = find_changes(runs)
    assert change == EnvironmentChange(
        runs[3], (("GPU", "H200", "B200"), ("torch", "2.9.1+cu128", "2.10.0"))
    )
    assert change.label == "B200, torch 2.10.0"


def test_a_change_is_against_the_neighbour_on_the_axis_not_in_time() -> None:
    parents = {"old": (None, 0), "new": ("old", 5)}
    measured = (("new", "2.10", 0), ("old", "2.9", 1), ("new", "2.10", 2))
    runs = [
        replace(RUN, id=f"R{at}", git_commit=commit, torch_version=torch, started_us=at)
        for commit, torch, at in measured
    ]
    assert [change.label for change in build_axis(runs, "date").changes] == [
        "torch 2.9",
        "torch 2.10",
    ]
    assert [change.label for change in build_axis(runs, "commit", parents=parents).changes] == [
        "torch 2.10"
    ]


def test_a_point_is_described_with_what_was_recorded_alone() -> None:
    bare = replace(
        RUN,
        git_commit=None,
        git_subject=None,
        torch_version=None,
        triton_version=None,
        gpu_name=None,
    )
    assert (
        describe_run(RUN) == "aaaaaaaa Fuse\ntorch 2.9.1+cu128 · triton 3.5.1\nH200 · driver 580.1"
    )
    assert describe_run(replace(RUN, state="interrupted")).startswith(
        "aaaaaaaa Fuse (interrupted)\n"
    )
    assert (
        describe_run(replace(bare, driver_version=None))
        == "commit not recorded\ntorch not recorded\nno GPU"
    )


def test_an_older_commit_that_was_measured_late_stands_before_its_known_descendants() -> None:
    parents = {"old": (None, 0), "new": ("old", 5), "side": ("gone", 9)}
    commits = [("new", 10), ("mystery", 11), ("old", 12), ("side", 13)]
    runs = [replace(RUN, id=commit, git_commit=commit, started_us=at) for commit, at in commits]
    laid = build_axis(runs, "commit", parents=parents)
    assert [run.id for run in laid.runs] == ["old", "new", "side", "mystery"]
    unknown, parted = laid.notes
    assert unknown.startswith("The history before 1 run's commit is not recorded")
    assert parted.startswith("These runs are of 2 stretches of history")
    assert list(build_axis(runs, "date", parents=parents).notes) == []
    assert "before the commits of all runs is not recorded" in build_axis(runs, "commit").notes[0]


def test_two_years_of_daily_runs_of_a_busy_repository_are_ordered_soon() -> None:
    parents = {f"{n:040x}": (f"{n - 1:040x}", n) for n in range(27_010)}
    runs = [
        replace(run, git_commit=f"{27_000 - 37 * n:040x}") for n, run in enumerate(make_runs(730))
    ]
    laid = build_axis(runs, "commit", parents=parents)
    assert [run.id for run in laid.runs] == [f"R{n:04d}" for n in reversed(range(730))]
    assert list(laid.notes) == []
