"""What people keep to compare with."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from compileboard.app.comparison.baselines import get_baseline, list_baselines
from compileboard.app.core.page import FilterError
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.dashboard import delete_baseline, save_baseline
from compileboard.collectors.store.migrations import migrate


def test_a_baseline_is_kept_replaced_and_deleted(tmp_path: Path) -> None:
    migrate(tmp_path / "x.db")
    with closing(open_writer(tmp_path / "x.db")) as store:
        assert save_baseline(store, "main", {"n": 1}, run_id="A", note=" why ", now_us=5)
        assert not save_baseline(store, "main", {"n": 2}, run_id="B", now_us=6)
        assert save_baseline(store, "main", {"n": 3}, run_id="B", now_us=7, replacing=True)
        baseline = get_baseline(store, "main")
        assert baseline is not None
        assert (
            baseline.body,
            baseline.run_id,
            baseline.note,
            baseline.created_us,
            baseline.changed_us,
        ) == (
            {"n": 3},
            "B",
            "why",
            5,
            7,
        )
        assert delete_baseline(store, "main") and not delete_baseline(store, "main")
        assert get_baseline(store, "main") is None and not save_baseline(
            store, "main", {}, run_id=None, replacing=True
        )


@pytest.mark.parametrize("name", ["", "-x", "a b", "x" * 101, "a/", "/a", "é"])
def test_a_name_that_cannot_be_typed_is_refused(tmp_path: Path, name: str) -> None:
    migrate(tmp_path / "x.db")
    with (
        closing(open_writer(tmp_path / "x.db")) as store,
        pytest.raises(ValueError, match="not a valid baseline name"),
    ):
        save_baseline(store, name, {}, run_id=None)
    with (
        closing(open_writer(tmp_path / "x.db")) as store,
        pytest.raises(ValueError, match="at most 20000"),
    ):
        save_baseline(store, "main", {}, run_id=None, note="x" * 20_001)


@pytest.mark.parametrize(
    "name", ["latest", "Previous", "x.csv", "beef", "3f2a91c", "01JB4T", "01", "0er428pfd0"]
)
def test_a_name_that_hides_something_is_refused(tmp_path: Path, name: str) -> None:
    migrate(tmp_path / "x.db")
    with (
        closing(open_writer(tmp_path / "x.db")) as store,
        pytest.raises(ValueError, match=r"that (is|may be)"),
    ):
        save_baseline(store, name, {}, run_id=None)


@pytest.mark.parametrize(
    "name", ["main", "release/2.4", "v2", "H200", "nightly", "2.4", "best", "a", "fast"]
)
def test_names_people_give_are_kept(tmp_path: Path, name: str) -> None:
    migrate(tmp_path / "x.db")
    with closing(open_writer(tmp_path / "x.db")) as store:
        assert save_baseline(store, name, {"n": 1}, run_id=None) and get_baseline(store, name)


def test_baselines_are_listed_page_by_page(tmp_path: Path) -> None:
    migrate(tmp_path / "x.db")
    with closing(open_writer(tmp_path / "x.db")) as store:
        for name in ("c", "a", "b"):
            save_baseline(store, name, {}, run_id=None)
        first = list_baselines(store, limit=2)
        assert [row.name for row in first.rows] == ["a", "b"]
        assert [row.name for row in list_baselines(store, first.next).rows] == ["c"]
        with pytest.raises(FilterError):
            list_baselines(store, "x")
